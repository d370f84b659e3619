package conform

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"
)

// Domain is the domain of the rules, and of most requests.
const Domain = "weir_conform"

// version is the version of the rules. It must change with the rules, so that a run reports a
// service with older ones.
const version = "1"

const day = 24 * time.Hour

// rulesYAML has the rules of fixed windows, in the grammar of envoyproxy/ratelimit, and then those
// that each algorithm has. The value of the entry run is different for each key of a check. Most
// windows are a day long, so a window rarely ends during a run, see trial.steady.
//
//go:embed rules.yaml
var rulesYAML string

// An algorithm is an algorithm whose rules the service may hold.
type algorithm struct {
	name     string
	Prefix   string        // begins the keys of its rules
	Extra    string        // in rate_limit
	hammered time.Duration // the length of the check of boundaries
	fault    func(ops []op, limit int64, window, skew time.Duration) *boundaryFault
}

func (a algorithm) rule(name string) string { return a.Prefix + name }

// algorithms are those that can be graded. envoyproxy/ratelimit has only the first.
var algorithms = []algorithm{
	{"fixed_window", "", "", 2600 * time.Millisecond, windowFault},
	{"sliding_log", "log_", "algorithm: sliding_log, ", 1900 * time.Millisecond, logFault},
	{"funnel", "funnel_", "algorithm: funnel, ", 1900 * time.Millisecond, funnelFault},
}

// Algorithms returns the names of the algorithms that can be graded.
func Algorithms() (names []string) {
	for _, a := range algorithms {
		names = append(names, a.name)
	}
	return names
}

func parseAlgorithms(names []string) ([]algorithm, error) {
	if len(names) == 0 {
		names = []string{"fixed_window"}
	}
	var all []algorithm
	for _, name := range names {
		named := func(a algorithm) bool { return a.name == name }
		n := slices.IndexFunc(algorithms, named)
		if n < 0 {
			return nil, fmt.Errorf("unknown algorithm %q: want some of %s", name, strings.Join(Algorithms(), ", "))
		}
		if !slices.ContainsFunc(all, named) {
			all = append(all, algorithms[n])
		}
	}
	return all, nil
}

// Rules returns the rules that the service must hold, in the grammar of envoyproxy/ratelimit, and
// with the keys that Weir adds for the other algorithms. Nil means fixed_window only. The rules of
// fixed windows are always included: the checks of the protocol use them.
func Rules(algorithms []string) (string, error) {
	chosen, err := parseAlgorithms(append([]string{"fixed_window"}, algorithms...))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = template.Must(template.New("rules").Parse(rulesYAML)).Execute(&b, map[string]any{
		"Version": version, "Domain": Domain, "Algorithms": chosen,
	})
	return b.String(), err
}
