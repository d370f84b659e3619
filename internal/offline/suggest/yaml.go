package suggest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rls/weir/internal/offline/rulesyaml"
	"github.com/weir-rls/weir/pkg/limiters"
)

// ErrNoYAML is returned for a report without a recommendation, or with recommendations for several
// domains, which need separate files.
var ErrNoYAML = errors.New("no YAML")

// YAML returns the recommendations as rules. The reasons are comments.
func (r *Report) YAML() (string, error) {
	domains := r.domains()
	switch len(domains) {
	case 0:
		return "", fmt.Errorf("%w: there is no recommendation; -o text shows the reasons", ErrNoYAML)
	case 1:
		return r.yaml(domains[0], true), nil
	}
	return "", fmt.Errorf("%w: the recommendations are for several domains, and each needs a file: choose one of %q with --domain",
		ErrNoYAML, domains)
}

// domains returns the domains with recommendations.
func (r *Report) domains() (names []string) {
	for _, rule := range r.Rules {
		if len(rule.Recommendations) > 0 && !slices.Contains(names, rule.Domain) {
			names = append(names, rule.Domain)
		}
	}
	return names
}

// yaml returns the rules of one domain.
func (r *Report) yaml(domain string, reasons bool) string {
	var root rulesyaml.Draft
	for _, rule := range r.Rules {
		if rule.Domain != domain || len(rule.Recommendations) == 0 {
			continue
		}
		at := root.At(rule.target.rule.Path())
		if reasons && rule.Note != "" {
			at.Comment = "left out: " + rule.Note
		}
		for _, rec := range rule.Recommendations {
			limit := rec.draft()
			if reasons {
				limit.Comment = strings.Join(rec.Reasons, "\n")
			}
			at.Limits = append(at.Limits, limit)
		}
	}
	return string(root.YAML(domain, ""))
}

// draft returns the limit with the settings of the rule that it keeps.
func (r *Recommendation) draft() rulesyaml.DraftLimit {
	l := rulesyaml.DraftLimit{
		Name: r.Name, Unit: r.Unit, UnitMultiplier: int64(r.Multiplier), RequestsPerUnit: r.Limit, Parameters: map[string]any{},
	}
	if r.Algorithm != limiters.DefaultAlgorithm {
		l.Algorithm = r.Algorithm
	}
	if counts := r.algorithm.variant.spec.CountDenied; counts != limiters.CountsDeniedByDefault(r.Algorithm) {
		l.CountDenied = &counts
	}
	for _, p := range limiters.Parameters(r.Algorithm) {
		if value := p.Text(r.algorithm.variant.params()); value != "" && !p.Derived {
			l.Parameters[p.Key] = value
		}
	}
	return l
}
