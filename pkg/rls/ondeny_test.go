package rls

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
)

// While another quota is free, a quota that is over denies nothing, so a problem does not name it.
func TestProblemNamesOnlyTheLimitsThatDeny(t *testing.T) {
	s, _ := serviceOn(t, denials, decide.Options{}, Options{})
	decideKeys(t, s, "quota_hour")
	for _, c := range []struct{ keys, want string }{
		{"quota_hour quota_day named", `"violated-policies":["hourly"]`},
		{"quota_hour named", `"violated-policies":["quota_hour","hourly"]`},
	} {
		if body := decideKeys(t, s, c.keys).GetRawBody(); !bytes.Contains(body, []byte(c.want)) {
			t.Errorf("%s: %s, want %s", c.keys, body, c.want)
		}
	}
}

// A problem contains no text of the request.
func TestProblemHasNoUserData(t *testing.T) {
	s, _ := serviceOn(t, denials, decide.Options{}, Options{DeniedByHeader: "x-denied-by", StandardHeaders: true})
	r := request(t, "named")
	r.Descriptors[0].Entries[0].Value = "secret-user"
	response, err := s.ShouldRateLimit(t.Context(), r)
	must.Succeed(t, err)
	text, err := protojson.Marshal(response)
	if err != nil || strings.Contains(string(text), "secret") || bytes.Contains(response.GetRawBody(), []byte("secret")) {
		t.Errorf("%s %s %v, want neither an error nor the secret", text, response.GetRawBody(), err)
	}
}

func TestStoreFailureIsAProblemOfCapacity(t *testing.T) {
	s, _ := serviceOn(t, strings.Replace(denials, "body: of the domain", "problem: true", 1), decide.Options{}, Options{StandardHeaders: true})
	r := decideKeys(t, s, "closed")
	var p map[string]any
	if err := json.Unmarshal(r.GetRawBody(), &p); err != nil || p["type"] != problemTypes+"temporary-reduced-capacity" || p["violated-policies"] != nil {
		t.Errorf("%s (%v)", r.GetRawBody(), err)
	}
	if h := headersOf(t, r); h["retry-after"] != "1" || h["ratelimit"] != "" {
		t.Errorf("headers %v, want a wait of a second and no limit, because its state is unknown", h)
	}
}
