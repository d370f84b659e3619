package admission

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A request that frees what another request holds is shed only beyond twice the limit.
func TestEndsAreShedBeyondTwiceTheLimit(t *testing.T) {
	g := NewGate(1)
	for i, c := range []struct {
		ends bool
		want error
	}{{false, nil}, {false, errOverloaded}, {true, nil}, {true, errOverloaded}} {
		if err := g.Admit(c.ends); !errors.Is(err, c.want) {
			t.Errorf("request %d: got %v, want %v", i, err, c.want)
		}
	}
}

// A stopping server is not overloaded: its requests get another status, and are not counted as
// shed.
func TestStoppingIsNotOverload(t *testing.T) {
	g := NewGate(1)
	g.CloseAndWait(t.Context())
	w := httptest.NewRecorder()
	g.Handler(http.NotFoundHandler(), 1).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", nil))
	if err := g.Admit(false); status.Code(err) != codes.Unavailable || w.Code != http.StatusServiceUnavailable {
		t.Errorf("got %v and %d, want Unavailable and 503", err, w.Code)
	}
	if got := g.Stats(); got != (Stats{}) {
		t.Errorf("counted %+v, want none", got)
	}
}
