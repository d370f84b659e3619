package rls

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Whatever is sent to /json is answered: a decision as JSON, or an error that says nothing of what was sent.
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
			if string(text) != "Bad Request\n" {
				t.Errorf("%q: %q", body, text)
			}
		default:
			t.Errorf("%q: %d %q", body, w.Code, text)
		}
	})
}
