package gitstore

// StopAt makes fn the failure of the steps of publishing until the returned
// function is called.
func StopAt(fn func(step string) error) (restore func()) {
	failpoint = fn
	return func() { failpoint = nil }
}

// Steps are the steps a batch with refs takes, in their order.
var Steps = []string{
	stepRefWrite, stepKeep, stepPackWrite, stepIndexWrite, stepSync, stepLock, stepPackRename, stepIdxRename,
	stepPackSync, stepRefRename, stepRefSync, stepRelease,
}

// StepRefRename is where the first ref may move.
const StepRefRename = stepRefRename

// IndexEntry is where an object lies in a pack.
type IndexEntry struct {
	OID    OID
	CRC    uint32
	Offset int64
}

// EncodePackIndex makes the index of a pack with these objects.
func EncodePackIndex(entries []IndexEntry) []byte {
	var list []indexEntry
	for _, e := range entries {
		list = append(list, indexEntry{e.OID, e.CRC, e.Offset})
	}
	return encodePackIndex(list, [20]byte{})
}

// WaitForMerge returns when no merge of small packs is under way.
func (s *Store) WaitForMerge() { s.writing.goroutine.Wait() }
