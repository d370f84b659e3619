package suggest

import (
	"fmt"
	"math"
	"time"

	"github.com/weir-rls/weir/internal/terminal"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// A Recommendation is a limit for a rule, with the reasons for it.
type Recommendation struct {
	Algorithm  string `json:"algorithm"`
	Unit       string `json:"unit"`
	Multiplier uint32 `json:"unit_multiplier"`
	Limit      int64  `json:"requests_per_unit"`
	Name       string `json:"name,omitempty"` // the limit's name in the rule
	// CurrentLimit is the limit in the rule, and Present its effect on the recording, including
	// that of its capacity and its penalty.
	CurrentLimit *int64       `json:"current,omitempty"`
	Present      *LimitEffect `json:"present,omitempty"`
	// Keys and Denied are the effect on the recording.
	Keys   Estimate  `json:"keys_hit"`
	Denied *Estimate `json:"requests_denied,omitempty"` // nil if the rule has too many limits for a run of each
	// Ordinary is the largest need of a key that is not an outlier.
	Ordinary int64 `json:"ordinary"`
	// Outliers are the keys with denied requests, largest needs first, at most 20.
	Outliers []Outlier `json:"outliers"`
	Reasons  []string  `json:"reasons"`

	split     split
	window    *WindowReport
	algorithm *AlgorithmReport
}

// An Outlier is a key whose requests a recommended limit denies.
type Outlier struct {
	Key   string `json:"key"`   // its entries, as arguments of weir peek
	Needs *int64 `json:"needs"` // the smallest limit that denies none of its requests; nil if there is none

	need int64
}

// recommend adds a recommendation for each limit of a rule, or one recommendation for a path.
func (c *Collector) recommend(r *RuleReport) {
	if r.target.isPath {
		c.recommendPath(r)
		return
	}
	for i := range r.target.rule.Limits {
		for _, w := range r.Windows {
			for _, a := range w.Algorithms {
				if a.variant.configured == &r.target.rule.Limits[i] {
					c.addRecommendation(r, a, "It keeps the algorithm and the window of the rule.")
				}
			}
		}
	}
}

// addRecommendation adds a recommendation, unless every limit of the algorithm denies ordinary
// keys.
func (c *Collector) addRecommendation(r *RuleReport, a *AlgorithmReport, reasons ...string) {
	s, w := a.dist.splitOutliers(), a.variant.window
	if s.ordinary == never {
		if r.Note != "" {
			r.Note += "; "
		}
		r.Note += fmt.Sprintf("no %s limit %s admits all requests of the ordinary keys: the largest is %s", a.Algorithm, w.per(),
			terminal.Grouped(a.variant.largestMax))
		return
	}
	rec := &Recommendation{
		Algorithm: a.Algorithm, Unit: w.Unit, Multiplier: w.Multiplier, Limit: min(s.withHeadroom(c.o.Headroom), a.variant.largestMax),
		CurrentLimit: a.CurrentLimit, Ordinary: s.ordinary, Outliers: []Outlier{}, Reasons: reasons, split: s, window: w, algorithm: a,
	}
	if configured := a.variant.configured; configured != nil {
		rec.Name = configured.Name
		if w.TooShort {
			rec.Limit = max(rec.Limit, configured.RequestsPerUnit)
		}
	}
	rec.Keys = estimateKeys(a.dist.above(rec.Limit), r.Sample)
	a.recommended = rec
	r.Recommendations = append(r.Recommendations, rec)
}

// maxLog is the largest limit for which a sliding log is recommended, because a log takes 16 bytes
// for every hit.
const maxLog = 100

// recommendPath chooses a window and an algorithm for a path without a rule.
func (c *Collector) recommendPath(r *RuleReport) {
	w, reason := c.chooseWindow(r)
	if a := w.algorithm(c.o.Algorithm); a != nil {
		c.addRecommendation(r, a, reason)
		return
	}
	var algorithm, because string
	logSplit := w.algorithm("sliding_log").dist.splitOutliers()
	switch {
	case w.length >= time.Hour:
		algorithm, because = "fixed_window", "a quota that resets at a known time is easy to explain, and its state is two numbers"
	case logSplit.withHeadroom(c.o.Headroom) > maxLog:
		algorithm, because = "funnel", "it spaces requests, and its state has a constant size; a sliding log remembers each hit"
	default:
		algorithm, because = "sliding_log", fmt.Sprintf("it admits at most the limit in any %s", w.name())
	}
	c.addRecommendation(r, w.algorithm(algorithm), reason, fmt.Sprintf("The algorithm is %s: %s.", algorithm, because))
}

// chooseWindow returns the window that best separates outliers from ordinary keys. The recording
// must be at least twice as long. Without outliers it returns a minute.
func (c *Collector) chooseWindow(r *RuleReport) (chosen *WindowReport, reason string) {
	widest := 0.0
	chosen = r.Windows[0]
	for _, w := range r.Windows {
		if w.Unit == c.o.Unit.String() {
			return w, "The window is the one that you chose."
		}
		if w.Recorded < 2 {
			continue
		}
		if w.Unit == descriptors.Minute.String() && widest == 0 {
			chosen = w
		}
		s := w.algorithm("sliding_log").dist.splitOutliers()
		if s.outliers > 0 && s.ratio() > widest {
			chosen, widest = w, s.ratio()
		}
	}
	if widest > 0 {
		return chosen, fmt.Sprintf("The window is one %s: of the windows that fit into the recording at least twice, it separates the "+
			"outliers best.", chosen.Unit)
	}
	if chosen.Unit == descriptors.Minute.String() {
		return chosen, "No key is an outlier in any window. The window is one minute, the default; --window chooses another."
	}
	return chosen, "The recording is shorter than two minutes, so the window is one second; --window chooses another."
}

func (w *WindowReport) algorithm(name string) *AlgorithmReport {
	for _, a := range w.Algorithms {
		if a.Algorithm == name {
			return a
		}
	}
	return nil
}

// duration returns the length of the window in words, such as minute or 15 minutes.
func (w *WindowReport) duration() string {
	if w.Multiplier == 1 {
		return w.Unit
	}
	return fmt.Sprintf("%d %ss", w.Multiplier, w.Unit)
}

// name returns the window as a noun, such as minute or window of 15 minutes.
func (w *WindowReport) name() string {
	if w.Multiplier == 1 {
		return w.Unit
	}
	return "window of " + w.duration()
}

// per returns the window as it follows a number, such as per minute or per 15 minutes.
func (w *WindowReport) per() string { return "per " + w.duration() }

func (r *Recommendation) addReason(format string, args ...any) {
	r.Reasons = append(r.Reasons, fmt.Sprintf(format, args...))
}

// explain completes a recommendation with its effect and its reasons.
func (c *Collector) explain(r *RuleReport, rec *Recommendation) {
	for i := range rec.algorithm.Candidates {
		if effect := &rec.algorithm.Candidates[i]; effect.Limit == rec.Limit {
			rec.Denied = &effect.Denied
		}
	}
	c.explainLimit(rec)
	rec.explainOutliers(r.Keys.N)
	if rec.Present != nil {
		rec.addReason("The present limit of %s denies %s of %s.", terminal.Grouped(*rec.CurrentLimit),
			rec.Present.Denied.withNoun("request"), rec.Present.Keys.withNoun("key"))
	}
	if capacity := rec.ownParams().Capacity; capacity != 0 {
		rec.addReason("The rule has a capacity of %d. The recommended limit has none: its number is the rate and the capacity.", capacity)
	}
	rec.cautionWindow()
}

// explainLimit adds the reason for the number.
func (c *Collector) explainLimit(rec *Recommendation) {
	busiest := fmt.Sprintf("The busiest ordinary key needs %s %s.", terminal.Grouped(rec.Ordinary), rec.window.per())
	switch {
	case rec.window.TooShort && rec.CurrentLimit != nil && rec.Limit == *rec.CurrentLimit:
		rec.addReason("%s The recording is too short for a lower limit than the present one.", busiest)
	case c.o.Headroom > 0:
		rec.addReason("%s With %.6g %% of headroom, rounded up, the limit is %s.", busiest, 100*c.o.Headroom, terminal.Grouped(rec.Limit))
	default:
		rec.addReason("%s You asked for no headroom.", busiest)
	}
}

// explainOutliers adds the outliers among a number of keys.
func (r *Recommendation) explainOutliers(keys int64) {
	s := &r.split
	least, outliers := terminal.Grouped(s.least), terminal.Grouped(s.outliers)
	const inspect = "Inspect outliers before you enforce the limit: they may be attackers or scripts."
	switch {
	case s.outliers == 1 && s.least == never:
		r.addReason("1 key is an outlier: it needs more than any limit. %s", inspect)
	case s.outliers == 1:
		r.addReason("1 key is an outlier: it needs %s, %.0f times as much as the busiest ordinary key. %s", least, s.ratio(), inspect)
	case s.outliers > 1 && s.least == never:
		r.addReason("%s keys are outliers: they need more than any limit. %s", outliers, inspect)
	case s.outliers > 1:
		r.addReason("%s keys are outliers: they need at least %s, %.0f times as much as the busiest ordinary key. %s", outliers, least,
			s.ratio(), inspect)
	case keys < outlierKeys:
		r.addReason("With fewer than %d keys, no key counts as an outlier. The limit denies none of the recorded requests.", outlierKeys)
	default:
		r.addReason("No key is an outlier, so the limit denies none of the recorded requests.")
	}
}

// cautionWindow warns if the recording has too few windows.
func (r *Recommendation) cautionWindow() {
	switch w := r.window; {
	case w.TooShort:
		more := "far more"
		if w.Recorded > 0.01 {
			more = fmt.Sprintf("up to %.0f times as much", max(2, math.Ceil(1/w.Recorded-0.02)))
		}
		r.addReason("Caution: the recording is shorter than the window. A whole %s may need %s.", w.name(), more)
	case w.Recorded < 3:
		r.addReason("Caution: the recording has only %.1f such windows. A busier one is likely.", w.Recorded)
	}
}

// ownParams returns the settings of the limit in the rule.
func (r *Recommendation) ownParams() limiters.Params {
	if r.algorithm.variant.configured == nil {
		return limiters.Params{}
	}
	return r.algorithm.variant.configured.Spec().Params
}

// addWarnings adds the reasons why the whole report is less certain.
func (c *Collector) addWarnings(r *Report) {
	if r.Denied > 0 {
		r.addWarning("The recording was made under a limiter: %s of %s lines were denied. They count as demand. Clients that repeat denied requests "+
			"make the demand larger than it is, and clients that give up make it smaller.", terminal.Grouped(r.Denied), terminal.Grouped(r.Requests))
	}
	if c.fraction < 1 {
		r.addWarning("The recording has a sample of %.6g %% of the keys. All numbers of keys and requests are estimates with intervals of 95 %%. "+
			"A key outside of the sample may need more than the largest need.", 100*c.fraction)
	}
	for _, rule := range r.Rules {
		if t := rule.target; t.halvings > 0 {
			r.addWarning("The keys of %s are too many for the memory: 1 in %d was kept, by hash. Its numbers are estimates.", rule.Path,
				uint64(1)<<t.halvings)
		}
	}
	for _, set := range c.sets {
		matched := func(rule *descriptors.Rule) bool { return c.byRule[rule] == nil || c.byRule[rule].report.Requests > 0 }
		for _, m := range set.unmatchable.List(matched) {
			r.addWarning("%s matches values of %s, but the recording has hashes there in %s of its descriptors. Weir cannot tell which of them match.",
				m.Path, m.Key, terminal.Grouped(m.Descriptors))
		}
	}
	if r.Invalid > 0 {
		r.addWarning("%s lines are invalid requests. The report ignores them.", terminal.Grouped(r.Invalid))
	}
	switch length := c.length(); {
	case r.Requests == 0:
		r.addWarning("The recording has no requests.")
	case length < 24*time.Hour:
		r.addWarning("The recording lasts %v. Other hours of the day may need more.", length.Round(time.Second))
	case length < 7*24*time.Hour:
		r.addWarning("The recording lasts %v. Other days of the week may need more.", length.Round(time.Second))
	}
}

func (r *Report) addWarning(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}
