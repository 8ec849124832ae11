//go:build !unix

package gitstore

func (s *Store) checkOwner() error { return nil }
