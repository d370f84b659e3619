package recovery

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// A request or task that panics is reported once, by its name, and a request gets an error that
// does not show the panic.
func TestPanicFailsOnlyItsHTTPRequest(t *testing.T) {
	var reported []string
	report := Report(func(where string, value any) { reported = append(reported, where+": "+value.(string)) })
	answer := httptest.NewRecorder()
	report.HTTP(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret") })).
		ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/json", nil))
	if answer.Code != 500 || answer.Body.String() != "Internal Server Error\n" {
		t.Errorf("by HTTP: %d %q", answer.Code, answer.Body)
	}
	func() {
		defer report.Recover("task")
		panic("secret")
	}()
	if want := []string{"/json: secret", "task: secret"}; !slices.Equal(reported, want) {
		t.Errorf("reported %q, want %q", reported, want)
	}
}

// A response that has begun gets no 500. The client sees a broken connection, so it does not take
// the response for complete.
func TestPanicAbortsAResponseThatHasBegun(t *testing.T) {
	var reported []string
	report := Report(func(where string, value any) { reported = append(reported, fmt.Sprint(where, ": ", value)) })
	for path, panicWith := range map[string]any{"/bug": "secret", "/abort": http.ErrAbortHandler} {
		for _, begin := range []func(http.ResponseWriter){
			func(w http.ResponseWriter) { _, _ = w.Write([]byte("begun")) },
			func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) },
		} {
			answer := httptest.NewRecorder()
			got := func() (recovered any) {
				defer func() { recovered = recover() }()
				report.HTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					begin(w)
					panic(panicWith)
				})).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
				return nil
			}()
			if got != http.ErrAbortHandler { //nolint:errorlint // the same value
				t.Errorf("%s: panicked with %v, want http.ErrAbortHandler", path, got)
			}
			if strings.Contains(answer.Body.String(), "Error") {
				t.Errorf("%s: response %q, want no error in it", path, answer.Body)
			}
		}
	}
	if want := []string{"/bug: secret", "/bug: secret"}; !slices.Equal(reported, want) {
		t.Errorf("reported %q, want %q", reported, want)
	}
}

// A handler that aborts its connection on purpose does not count as a panic.
func TestAbortIsNotReported(t *testing.T) {
	report := Report(func(where string, value any) { t.Errorf("reported %s, %v", where, value) })
	answer := httptest.NewRecorder()
	defer func() {
		if got := recover(); got != http.ErrAbortHandler || answer.Body.Len() > 0 { //nolint:errorlint // the same value
			t.Errorf("panicked with %v and wrote %q, want http.ErrAbortHandler and nothing", got, answer.Body)
		}
	}()
	report.HTTP(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })).
		ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
}

// Without a panic, responses are unchanged, and nothing is reported.
func TestHTTPRequestsWithoutPanicAreUnchanged(t *testing.T) {
	report := Report(func(where string, value any) { t.Errorf("reported %s, %v", where, value) })
	answer := httptest.NewRecorder()
	report.HTTP(http.NotFoundHandler()).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
	if answer.Code != 404 {
		t.Errorf("by HTTP: %d, want 404", answer.Code)
	}
	report.Recover("task")
}
