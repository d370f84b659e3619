package suggest

import (
	"context"
	"math"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/recording"
)

// A Report is the limits that fit a recording. Its JSON is a contract; fields may be added. Text
// and YAML also need the unexported fields.
type Report struct {
	Requests  int64     `json:"requests"` // lines
	Unmatched int64     `json:"unmatched"`
	Invalid   int64     `json:"invalid"` // lines that every server rejects
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
	Seconds   float64   `json:"seconds"`
	// Denied is the number of lines that the recording denies. Outcomes is the number of lines with
	// a recorded outcome.
	Denied   int64         `json:"denied_when_recorded"`
	Outcomes int64         `json:"with_outcome"`
	Warnings []string      `json:"warnings"`
	Rules    []*RuleReport `json:"rules"`
	// Paths are the key paths of the recording, most frequent first, at most 20.
	Paths []KeyPath `json:"key_paths"`
}

// A RuleReport is a rule or a key path with the needs of its keys.
type RuleReport struct {
	Domain string `json:"domain"`
	Path   string `json:"path"`
	Source string `json:"source,omitempty"` // file and line; empty for a key path
	// Note has the reason for each missing recommendation, or is "".
	Note string `json:"note,omitempty"`

	Requests   int64    `json:"requests"`
	Hits       int64    `json:"hits"` // without refunds
	Peeks      int64    `json:"peeks"`
	Refunds    int64    `json:"refunds"`
	Overridden int64    `json:"overridden"` // requests that carry a limit, which are left out
	Denied     int64    `json:"denied_when_recorded"`
	Keys       Estimate `json:"keys"`
	// Sample is the fraction of the keys from which all numbers of keys and of denied requests are
	// estimated. It is 1 if they are exact.
	Sample float64 `json:"sample"`

	Windows         []*WindowReport   `json:"windows"`
	Recommendations []*Recommendation `json:"recommendations"`

	target *target
}

// A WindowReport holds the needs of the keys for one length of window.
type WindowReport struct {
	Unit       string  `json:"unit"`
	Multiplier uint32  `json:"unit_multiplier"`
	Recorded   float64 `json:"recorded"` // the length of the recording, in windows
	TooShort   bool    `json:"too_short"`
	// Algorithms lists the three algorithms. An algorithm occurs more than once if the rule uses it
	// with several settings.
	Algorithms []*AlgorithmReport `json:"algorithms"`

	unit   descriptors.Unit
	length time.Duration
}

// An AlgorithmReport holds the needs of the keys under one algorithm.
type AlgorithmReport struct {
	Algorithm    string `json:"algorithm"`
	Settings     string `json:"settings,omitempty"` // settings of the rule, such as window_start=first_hit
	CurrentLimit *int64 `json:"current,omitempty"`  // the limit in the rule
	// Smallest is the smallest limit that denies no request; nil if there is none.
	Smallest   *int64        `json:"smallest_denies_nobody"`
	Candidates []LimitEffect `json:"candidates"`
	Curve      []Point       `json:"curve"`

	variant     *variant
	dist        *distribution
	recommended *Recommendation // nil if no limit of the algorithm is recommended
}

// A LimitEffect is a limit with its effect on the recording.
type LimitEffect struct {
	Limit  int64    `json:"limit"`
	Keys   Estimate `json:"keys_hit"`
	Denied Estimate `json:"requests_denied"`
}

// Report finds the limits. fraction is the fraction of all keys that the recording has, above 0 and
// at most 1. Below 1 the report has estimates. The Collector must not be used afterwards. The error
// is that of ctx, if ctx has ended.
func (c *Collector) Report(ctx context.Context, fraction float64) (*Report, error) {
	c.fraction = fraction
	r := &c.report
	r.Seconds, r.Paths, r.Rules, r.Warnings = c.length().Seconds(), c.seen.list(), []*RuleReport{}, []string{}
	for _, t := range c.targets {
		rule, err := c.analyze(ctx, t)
		if err != nil {
			return nil, err
		}
		t.keys = nil
		r.Rules = append(r.Rules, rule)
	}
	c.addWarnings(r)
	return r, nil
}

// length returns the length of the recording.
func (c *Collector) length() time.Duration { return c.report.Last.Sub(c.report.First) }

// analyze finds the limits of one target.
func (c *Collector) analyze(ctx context.Context, t *target) (*RuleReport, error) {
	rule := t.report
	rule.Sample = c.fraction / float64(uint64(1)<<t.halvings)
	rule.Keys = estimateKeys(int64(len(t.keys)), rule.Sample)
	rule.Windows, rule.Recommendations = []*WindowReport{}, []*Recommendation{}
	if rule.Note == "" && len(t.keys) == 0 {
		rule.Note = "no request of the recording is under it"
		if rule.Overridden > 0 {
			rule.Note = "all its requests carry a limit, and are left out"
		}
	}
	if rule.Note != "" {
		return rule, nil
	}
	limits := t.rule.Limits
	if t.isPath {
		limits = nil
	}
	var err error
	rule.Windows, err = c.windowsOf(limits)
	if err != nil {
		return nil, err
	}
	keys := sortedKeys(t.keys)
	measurements, err := rule.measure(ctx, keys)
	if err != nil {
		return nil, err
	}
	c.recommend(rule)
	if err := rule.addCandidates(ctx, keys, measurements); err != nil {
		return nil, err
	}
	for _, rec := range rule.Recommendations {
		c.explain(rule, rec)
	}
	return rule, nil
}

// An Estimate is a number of keys or requests. If the keys were sampled, the true number lies
// between Low and High with a confidence of 95 %. Otherwise all three are equal.
type Estimate struct {
	N    int64 `json:"n"`
	Low  int64 `json:"low"`
	High int64 `json:"high"`
}

// estimateKeys estimates the number of all keys from the number k in a sample. The sample has the
// fraction of all keys.
func estimateKeys(k int64, fraction float64) Estimate {
	low, high := recording.EstimateKeys(k, fraction)
	return Estimate{N: int64(math.Round(float64(k) / fraction)), Low: low, High: high}
}

// estimateSum estimates a sum over all keys from the sum in such a sample. squares is the sum of
// the squares of its addends.
func estimateSum(sum int64, squares, fraction float64) Estimate {
	low, high := recording.EstimateSum(float64(sum), squares, fraction)
	return Estimate{N: int64(math.Round(float64(sum) / min(fraction, 1))), Low: int64(low), High: int64(math.Ceil(high))}
}
