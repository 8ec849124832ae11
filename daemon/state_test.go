package daemon

import (
	"testing"

	"github.com/relofs/relofs/api"
)

func TestEveryStateLeadsOnAndOnlyAsTheTableSays(t *testing.T) {
	states := []api.State{api.Unmounted, api.Mounting, api.Mounted, api.Unmounting}
	if len(transitions) != len(states) {
		t.Fatalf("the table has %d states", len(transitions))
	}
	for _, from := range states {
		if len(transitions[from]) == 0 {
			t.Errorf("nothing leads on from %q", from)
		}
		for e := range event(len(eventNames)) {
			want, allowed := transitions[from][e]
			got, ok := tryNext(from, e)
			if ok != allowed || got != want {
				t.Errorf("%q and %v: %q, %v; the table says %q, %v", from, e, got, ok, want, allowed)
			}
		}
	}
}

func tryNext(from api.State, e event) (to api.State, ok bool) {
	defer func() { recover() }()
	to = next(from, e)
	return to, true
}
