package admission

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

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
	if got, want := g.Stats(), (Stats{InFlight: 2, Shed: 2}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

func TestCloseWaitsForRequestsInFlight(t *testing.T) {
	for name, done := range map[string]time.Duration{"until they are decided": 5 * time.Second, "until the context ends": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewGate(1)
				if err := g.Admit(false); err != nil {
					t.Error(err)
				}
				time.AfterFunc(done, g.Done)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				g.CloseAndWait(ctx)
				if took, want := time.Since(began), min(done, time.Minute); took < want || took > want+checkInterval {
					t.Errorf("took %v, want %v", took, want)
				}
			})
		})
	}
}

// A client may read its response slowly.
func TestResponseIsWrittenOutsideTheLimit(t *testing.T) {
	g := NewGate(1)
	w := &observedWriter{ResponseRecorder: httptest.NewRecorder(), onWrite: func() {
		if n := g.Stats().InFlight; n != 0 {
			t.Errorf("%d requests in flight while a response is written, want 0", n)
		}
	}}
	g.Handler(http.NotFoundHandler(), 1).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", nil))
	if w.Code != http.StatusNotFound || w.Body.Len() == 0 {
		t.Errorf("got %d and %q, want the response of the handler", w.Code, w.Body)
	}
}

type observedWriter struct {
	*httptest.ResponseRecorder
	onWrite func()
}

func (w *observedWriter) Write(b []byte) (int, error) {
	w.onWrite()
	return w.ResponseRecorder.Write(b)
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
