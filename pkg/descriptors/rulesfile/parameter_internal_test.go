package rulesfile

import (
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
)

// Each type of parameter, also those that no algorithm uses yet.
func TestParameterTypesAreChecked(t *testing.T) {
	types := map[string]*parameter{
		"size":  {Parameter: limiters.Parameter{Key: "size", Type: limiters.Integer, Min: 2, Max: 9}},
		"start": {Parameter: limiters.Parameter{Key: "start", Type: limiters.Choice, Choices: []string{"clock", "hit"}}},
		"pause": {Parameter: limiters.Parameter{Key: "pause", Type: limiters.Duration, Min: 1000, Max: 3_600_000_000}},
	}
	for _, c := range []struct{ key, value, want, fault string }{
		{"size", "7", "7", ""},
		{"size", "1", "", "f:1:7: 'size' is 1: want a whole number from 2 to 9"},
		{"size", "10", "", "f:1:7: 'size' is 10: want a whole number from 2 to 9"},
		{"size", "big", "", "f:1:7: 'size' is the text 'big': want a whole number from 2 to 9"},
		{"start", "hit", "hit", ""},
		{"start", "noon", "", "f:1:8: unknown start 'noon': want one of clock, hit"},
		{"pause", "90s", "1m30s", ""},
		{"pause", "1.5ms", "1.5ms", ""},
		{"pause", "90", "", "f:1:8: 'pause' is 90: want a duration from 1ms to 1h, such as 90s or 1h30m"},
		{"pause", "2h", "", "f:1:8: 'pause' is the text '2h': want a duration from 1ms to 1h, such as 90s or 1h30m"},
		{"pause", "1000001ns", "", "f:1:8: 'pause' is the text '1000001ns': want a duration from 1ms to 1h, such as 90s or 1h30m"},
		{"pause", "[1s]", "", "f:1:8: 'pause' is a list: want a duration from 1ms to 1h, such as 90s or 1h30m"},
	} {
		var doc yaml.Node
		must.Succeed(t, yaml.Unmarshal([]byte(c.key+": "+c.value), &doc))
		content := doc.Content[0].Content
		r := newReader(File{Name: "f"})
		got, fault := r.readParameter(field{content[0], content[1]}, types[c.key]), ""
		if len(r.faults) > 0 {
			fault = r.faults[0].String()
		}
		if got != c.want || fault != c.fault {
			t.Errorf("%s: %s\ngot  %q, %q\nwant %q, %q", c.key, c.value, got, fault, c.want, c.fault)
		}
	}
}
