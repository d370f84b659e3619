package rls

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

func TestJSONRequestsGetStatusAndBody(t *testing.T) {
	s := serviceOf(t, modes(t), Options{})
	for _, c := range []struct {
		body     string
		code     int
		contains string
	}{
		{`{"domain":"modes","descriptors":[{"entries":[{"key":"free","value":"v"}]}]}`, 200, `"requestsPerUnit":100`},
		{`{"domain":"modes","descriptors":[{"entries":[{"key":"full","value":"v"}]}]}`, 429, `"overallCode":"OVER_LIMIT"`},
		{`{"domain":"modes","descriptors":[{"entries":[{"key":"free"}], "hits_addend": "3"}]}`, 200, `"limitRemaining":97`},
		{`{"domain":"modes","nonsense":1}`, 400, `BadRequest:notaRateLimitRequest:(line1:19):unknownfield"nonsense":writeone`},
		{`{"domain":""}`, 400, "BadRequest:ratelimitdomainmustnotbeempty"},
		{`{"domain":"` + strings.Repeat("x", MaxBodyBytes) + `"}`, 400, "BadRequest:thebodyhasmorethan262144bytes"},
		{``, 400, "BadRequest:notaRateLimitRequest:thebodyisempty"},
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(c.body)))
		body, _ := io.ReadAll(w.Result().Body)
		if got := strings.ReplaceAll(string(body), " ", ""); w.Code != c.code || !strings.Contains(got, c.contains) {
			t.Errorf("%.80s: %d %s, want %d %s", c.body, w.Code, got, c.code, c.contains)
		}
	}
	missing := New(decide.New(func() *descriptors.Rules { return nil }, limiterstest.NewReference(), decide.Options{}), Options{})
	w := httptest.NewRecorder()
	missing.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(`{"domain":"a","descriptors":[{}]}`)))
	if w.Code != 503 {
		t.Errorf("without rules: %d, want 503", w.Code)
	}
}

func TestJSONErrorsNameTheFault(t *testing.T) {
	for body, want := range map[string]string{
		`{"domian": "ugc"}`: `(line 1:2): unknown field "domian": write one such as {"domain":"shop","descriptors":`,
		`{"domain": 5}`:     `(line 1:12): invalid value for string field domain: 5: write one`,
		`{"descriptors": [{"limit": {"unit": "MINUTES"}}]}`: `(line 1:37): invalid value for enum field unit: "MINUTES": write one`,
		`{"hits_addend": -1}`:                               `(line 1:17): invalid value for uint32 field hitsAddend: -1: write one`,
		`{"domain": "a", "domain": "b"}`:                    `(line 1:17): duplicate field "domain": write one`,
		"{\n  \"domain\": \"ugc\",\n}":                      `syntax error (line 3:1): unexpected token }: write one`,
		`{"domain": "ugc"`:                                  `unexpected EOF: write one`,
		` `:                                                 `the body is empty: write one`,
		`{"` + strings.Repeat("x", 1000) + `\u0000": 1}`:    `(line 1:2): unknown field "xxx`,
	} {
		f := newFixture(t)
		w := httptest.NewRecorder()
		f.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(body)))
		if got := w.Body.String(); w.Code != http.StatusBadRequest || !strings.HasPrefix(got, "Bad Request: not a RateLimitRequest: "+want) {
			t.Errorf("%.80s: %d %swant Bad Request: not a RateLimitRequest: %s", body, w.Code, got, want)
		}
		if len(f.observed) != 1 || f.observed[0].Code != codes.InvalidArgument || f.observed[0].Err == nil {
			t.Errorf("%.80s: observed %+v, want one INVALID_ARGUMENT", body, f.observed)
		}
	}
}

// The observed error is logged at every level, so it must not quote the client. The response may.
func TestObservedErrorsDoNotQuoteTheBody(t *testing.T) {
	for _, sent := range []string{
		`Content-Length: 19` + "\r\n\r\n" + `{"domain": hunter2}`,
		`Content-Length: 13` + "\r\n\r\n" + `{"hunter2":1}`,
		"Transfer-Encoding: chunked\r\n\r\n0\r\nhunter2\r\n\r\n", // an invalid trailer
	} {
		f := newFixture(t)
		request, err := http.ReadRequest(bufio.NewReader(strings.NewReader("POST /json HTTP/1.1\r\nHost: weir\r\n" + sent)))
		must.Succeed(t, err)
		w := httptest.NewRecorder()
		f.ServeHTTP(w, request)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "hunter2") {
			t.Errorf("%q: %d %s, want 400 with the fault", sent, w.Code, w.Body)
		}
		if err := f.observed[0].Err; strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "response") {
			t.Errorf("%q: observed %v, want an error that refers to the response", sent, err)
		}
	}
}

// A wrapper is a ResponseWriter like those of middleware.
type wrapper struct{ http.ResponseWriter }

func (w wrapper) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// net/http must know that a body was cut, even through a wrapper of its ResponseWriter. Otherwise
// it may reset the connection while the client still sends, and the response is lost. If it knows,
// it closes the connection after the response.
func TestTooLargeBodyClosesTheConnection(t *testing.T) {
	f := newFixture(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.ServeHTTP(wrapper{wrapper{w}}, r) }))
	defer server.Close()
	for size, want := range map[int]bool{MaxBodyBytes: false, MaxBodyBytes + 1: true} {
		response, err := http.Post(server.URL, "application/json", strings.NewReader(strings.Repeat(" ", size)))
		must.Succeed(t, err)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusBadRequest || response.Close != want {
			t.Errorf("%d bytes: status %d, connection closed: %v, want 400 and %v", size, response.StatusCode, response.Close, want)
		}
	}
}

// Parsing takes much more memory than the body.
func TestFewBodiesAreParsedAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newFixture(t), httptest.NewRecorder()
		for range cap(s.parsing) {
			s.parsing <- struct{}{}
		}
		go s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader("{}")))
		synctest.Wait()
		if w.Body.Len() > 0 {
			t.Errorf("answered %q while others are parsed", w.Body)
		}
		<-s.parsing
		synctest.Wait()
		if w.Code != http.StatusBadRequest || len(s.parsing) != cap(s.parsing)-1 {
			t.Errorf("got %d, %d bodies being parsed, want 400 and one fewer than before", w.Code, len(s.parsing))
		}
	})
}

// The response to any body is a decision as JSON, or one short line of text without control
// characters.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"domain":"ugc","descriptors":[{"entries":[{"key":"user_id","value":"alice"},{"key":"action","value":"post"}]}]}`,
		`{"domain":"ugc","hits_addend":4294967295,"descriptors":[{"entries":[{"key":"user_id"}],"limit":{"requestsPerUnit":1,"unit":"DAY"}}]}`,
		`{"domain":"ugc","descriptors":[{"entries":[{"key":"a"}],"hitsAddend":"18446744073709551615","isNegativeHits":true}]}`,
		`{"domain":"\u0000\ud800","descriptors":[{}]}`, `{"nobody":1}`, `[[[[`, `null`, ``, `{"domain":1e309}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		w := httptest.NewRecorder()
		newFixture(t).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", bytes.NewReader(body)))
		switch text := w.Body.Bytes(); w.Code {
		case http.StatusOK, http.StatusTooManyRequests:
			if !json.Valid(text) {
				t.Errorf("%q: no JSON: %q", body, text)
			}
		case http.StatusBadRequest:
			line, ended := strings.CutSuffix(string(text), "\n")
			if !ended || !strings.HasPrefix(line, "Bad Request: ") || len(line) > 600 || !utf8.ValidString(line) ||
				strings.ContainsFunc(line, unicode.IsControl) {
				t.Errorf("%q: %q", body, text)
			}
		default:
			t.Errorf("%q: %d %q", body, w.Code, text)
		}
	})
}

func TestParseRequestHasTheMeaningOfJSON(t *testing.T) {
	for _, body := range []string{
		`{"domain": "d", "hits_addend": 3, "descriptors": [{"entries": [{"key": "k", "value": "v"}], "limit": {"unit": "HOUR", "requests_per_unit": 7}},
			{"is_negative_hits": true, "hits_addend": "2"}]}`,
		`{"domain": "d", "hitsAddend": 3, "descriptors": [{"entries": [{"key": "k", "value": "v"}], "limit": {"unit": "HOUR", "requestsPerUnit": 7}},
			{"isNegativeHits": true, "hitsAddend": 2}]}`,
	} {
		request, err := ParseRequest([]byte(body))
		must.Succeed(t, err)
		first, second := request.Descriptors[0], request.Descriptors[1]
		if request.Domain != "d" || first.Hits != 3 || first.Entries[0] != (descriptors.Entry{Key: "k", Value: "v"}) ||
			*first.Override != (decide.Override{RequestsPerUnit: 7, Unit: descriptors.Hour}) || second.Hits != -2 || !second.Refund {
			t.Errorf("%s: %+v", body, request)
		}
	}
	for body, want := range map[string]string{
		`{"domian": "d"}`: `unknown field "domian"`,
		`{"domain": "d", "descriptors": [{"limit": {"unit": "UNKNOWN"}}]}`: "descriptors[0]: limit: ",
		``: "the body is empty",
	} {
		if _, err := ParseRequest([]byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", body, err, want)
		}
	}
}

// A body that does not arrive is the fault of its client only if the client is still there.
func TestBodyOfAClientThatLeftIsNotInvalid(t *testing.T) {
	for cause, want := range map[error]codes.Code{
		os.ErrDeadlineExceeded: codes.InvalidArgument, errors.New("invalid byte in chunk length"): codes.InvalidArgument,
		io.ErrUnexpectedEOF: codes.Canceled, &net.OpError{Op: "read", Err: syscall.ECONNRESET}: codes.Canceled,
	} {
		f := newFixture(t)
		w := httptest.NewRecorder()
		f.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", io.MultiReader(strings.NewReader("{"), iotest.ErrReader(cause))))
		if o := f.observed[0]; o.Code != want || !o.Undecoded || o.Undecodable() == (want == codes.Canceled) || w.Code != 400 {
			t.Errorf("%v: %+v, status %d, want %v and status 400", cause, o, w.Code, want)
		}
	}
}

// Exchanges are pooled, so one over gRPC may be reused for a request in JSON.
func TestObservationHasTheProtocolOfItsRequest(t *testing.T) {
	f := newFixture(t)
	for _, body := range []string{`{"domain":"ugc","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`, "no JSON"} {
		serveUndecoded(f.Service, errors.New("too large"))
		f.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(body)))
	}
	var got []Protocol
	for _, o := range f.observed {
		got = append(got, o.Protocol)
	}
	if want := []Protocol{GRPC, JSON, GRPC, JSON}; !slices.Equal(got, want) {
		t.Errorf("observed %v, want %v", got, want)
	}
}
