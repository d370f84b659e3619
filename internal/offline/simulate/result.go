package simulate

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-rls/weir/pkg/recording"
)

// Bounds of a [Result].
const (
	maxBuckets   = 200 // buckets in a Timeline
	maxTopKeys   = 20  // keys listed for a limit
	maxUnmatched = 20  // key paths without a rule
	burstBins    = 60  // bins in a Burst
)

// A Result is the outcome of a simulation, and its JSON form. Times are those of the recording.
// Counts are of requests, unless their name contains hits. All counts are of the client model Drop,
// except in Clients, Interval and LimitClients.
type Result struct {
	Requests int64 `json:"requests"` // Allowed + Denied + Failed
	Allowed  int64 `json:"allowed"`  // including Unmatched
	Denied   int64 `json:"denied"`
	// Unmatched is the number of requests without a rule for any of their descriptors. They are
	// allowed.
	Unmatched int64 `json:"unmatched"`
	// Failed is the number of requests that a server with these rules answers with an error, for
	// example because too many limits match. FirstFailure is the error of the first of them.
	Failed       int64  `json:"failed"`
	FirstFailure string `json:"first_failure,omitempty"`

	From         time.Time `json:"from,omitzero"` // the time of the first request; zero without requests
	To           time.Time `json:"to,omitzero"`   // the time of the last request
	RulesVersion string    `json:"rules_version"`
	Synthetic    string    `json:"synthetic,omitempty"` // the description of a synthetic load; empty for a recording

	// UnmatchedDescriptors is the number of descriptors without a rule, except empty ones.
	// UnmatchedPaths has their most frequent key paths.
	UnmatchedDescriptors int64           `json:"unmatched_descriptors"`
	UnmatchedPaths       []UnmatchedPath `json:"unmatched_paths"`

	// CannotMatch are rules that match no request, because they match values of which the recording
	// has only hashes.
	CannotMatch []recording.UnmatchableRule `json:"cannot_match"`

	Recorded Recorded  `json:"recorded"`
	Sample   *Sample   `json:"sample,omitempty"` // nil if the recording has every request
	Clients  []Client  `json:"clients"`          // Drop first
	Interval *Interval `json:"interval,omitempty"`

	Timeline Timeline       `json:"timeline"`
	Limits   []*LimitResult `json:"limits"` // in the order of the rules, and then overrides

	Lines    int64                     `json:"lines"` // all lines of the recording, including skipped and empty ones
	Skipped  []recording.FileSkipCount `json:"skipped"`
	Warnings []string                  `json:"warnings"` // reasons why counts are not exact
}

// WorstFirst returns the limits sorted by their denied requests, and then by their requests,
// highest first.
func (r *Result) WorstFirst() []*LimitResult {
	all := slices.Clone(r.Limits)
	slices.SortStableFunc(all, func(a, b *LimitResult) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Requests, a.Requests))
	})
	return all
}

// An UnmatchedPath counts descriptors without a rule. Path has their keys, such as user_id.action.
type UnmatchedPath struct {
	Domain      string `json:"domain"`
	Path        string `json:"path"`
	Descriptors int64  `json:"descriptors"`
}

// Recorded counts the verdicts in the recording.
type Recorded struct {
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
	Unknown int64 `json:"unknown"` // without a verdict
	// NewlyDenied are requests that the recording allows and the simulation denies; NewlyAllowed is
	// the opposite. Both omit requests under Fallback and Errors, and those that failed in the
	// simulation.
	NewlyDenied  int64 `json:"newly_denied"`
	NewlyAllowed int64 `json:"newly_allowed"`
	// Overrides are requests that carry a limit, which the simulation uses too.
	Overrides int64 `json:"overrides"`
	// Cache, Fallback and Errors are requests that the store alone did not decide: the deny cache
	// denied them, on_store_error decided them, or nothing did. The simulation decides them like
	// all others.
	Cache    int64 `json:"cache"`
	Fallback int64 `json:"fallback"`
	Errors   int64 `json:"errors"`
	// Partial are requests of which a sample has only some descriptors.
	Partial int64 `json:"partial"`
}

// A Sample estimates the figures of all traffic from a recording that was sampled by key.
type Sample struct {
	Share    float64  `json:"share"` // the share of keys recorded, above 0 and below 1
	Requests Estimate `json:"requests"`
	// Denied assumes that the descriptors which the sample left out are allowed. Its interval also
	// includes the number if they are denied.
	Denied Estimate `json:"denied"`
}

// An Estimate is a number with its 95 % confidence interval.
type Estimate struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// A Client is the outcome under one client model. Attempts are requests and their retries: Attempts
// = Requests + Retries = Allowed + Denied + Failed.
type Client struct {
	Model    Model `json:"model"`
	Attempts int64 `json:"attempts"`
	Retries  int64 `json:"retries"`
	Allowed  int64 `json:"allowed"` // attempts
	Denied   int64 `json:"denied"`  // attempts
	Failed   int64 `json:"failed"`  // attempts
	// Every denied request of the recording is one of these. A Recovered request was allowed at a
	// retry. A GaveUp request had no retry left or could never fit. The retry of a Waiting request
	// would be after the end of the recording. An Overflowed request was not retried, because too
	// many retries were waiting.
	Recovered  int64 `json:"recovered"`
	GaveUp     int64 `json:"gave_up"`
	Waiting    int64 `json:"waiting"`
	Overflowed int64 `json:"overflowed"`
}

// An Interval holds the lowest and the highest result of the client models. The result of real
// clients is probably within it.
type Interval struct {
	Denied      Range `json:"denied"`       // attempts
	DeniedShare Range `json:"denied_share"` // the share of attempts, 0 to 1
}

// A Range is an interval, both ends included.
type Range struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// A Timeline divides the time of the recording into at most 200 buckets of equal length. The series
// of limits use the same buckets.
type Timeline struct {
	Start         time.Time `json:"start,omitzero"` // when the first bucket begins
	BucketSeconds float64   `json:"bucket_seconds"`
	Allowed       []int64   `json:"allowed"` // requests in each bucket
	Denied        []int64   `json:"denied"`
}

// A LimitResult is the outcome of one limit. Its requests are those with a descriptor under the
// limit.
type LimitResult struct {
	Domain    string `json:"domain"`
	Path      string `json:"path"`      // the rule's keys and values, such as user_id.action=reply
	Name      string `json:"name"`      // the limit's name, or its number within the rule; "override" for limits that requests carry
	Algorithm string `json:"algorithm"` // "" for override
	Text      string `json:"text"`      // such as 5 per minute, fixed_window
	Source    string `json:"source"`    // file and line
	Mode      string `json:"mode"`      // enforced, shadow or quota
	// RequestsPerUnit is the maximum. WindowSeconds is 0 for concurrency and overrides.
	RequestsPerUnit int64   `json:"requests_per_unit"`
	WindowSeconds   float64 `json:"window_seconds"`

	Requests int64 `json:"requests"`
	// Denied are requests that this limit itself denies, in shadow mode too. Other limits may deny
	// further requests.
	Denied     int64 `json:"denied"`
	Hits       int64 `json:"hits"`
	Keys       int64 `json:"keys"`        // different keys
	KeysDenied int64 `json:"keys_denied"` // keys with a denied request
	// NearLimit are allowed requests after which the key's usage is above 80 % of the limit.
	NearLimit int64 `json:"near_limit"`
	// Peak is the highest usage of a key after an allowed request; nil without one.
	Peak *Peak `json:"peak,omitempty"`
	// ShutOutSeconds is the sum of TopKey.ShutOutSeconds over all keys.
	ShutOutSeconds float64 `json:"shut_out_seconds"`
	// KeysEstimate and KeysDeniedEstimate estimate all traffic, if the recording is sampled.
	KeysEstimate       *Estimate `json:"keys_estimate,omitempty"`
	KeysDeniedEstimate *Estimate `json:"keys_denied_estimate,omitempty"`
	// Untracked are requests of keys beyond Options.MaxKeys. Every count includes them, except
	// Keys, KeysDenied, TopKeys, Usage and Comparison.
	Untracked int64 `json:"untracked"`

	AllowedOverTime []int64        `json:"allowed_over_time"` // by the buckets of the Timeline; empty without requests
	DeniedOverTime  []int64        `json:"denied_over_time"`
	TopKeys         []TopKey       `json:"top_keys"` // most denied first; only keys that were denied
	Usage           *Usage         `json:"usage,omitempty"`
	Comparison      *Comparison    `json:"comparison,omitempty"`
	Clients         []LimitClients `json:"clients"`
}

// A Peak is the usage of a key at a time.
type Peak struct {
	Used int64     `json:"used"`
	At   time.Time `json:"at"`
	Key  string    `json:"key"`
}

// A TopKey is a key that was denied.
type TopKey struct {
	Key         string    `json:"key"` // such as user_id=42,action=reply
	Requests    int64     `json:"requests"`
	Denied      int64     `json:"denied"`
	FirstDenied time.Time `json:"first_denied"`
	LastDenied  time.Time `json:"last_denied"`
	// ShutOutSeconds is the total time from each denial until the denied hits would have fit.
	// Overlapping times count once. The last may end after the recording.
	ShutOutSeconds float64 `json:"shut_out_seconds"`
}

// Usage describes the keys of a limit by their demand, which is the largest number of hits, allowed
// or denied, in any interval as long as the window.
type Usage struct {
	// Demand holds the quantiles of the demand over the keys, in hits, and Requests the quantiles
	// of the number of requests.
	Demand   Quantiles `json:"demand"`
	Requests Quantiles `json:"requests"`
	// Histogram counts the keys by demand in percent of the limit. The bins are contiguous.
	Histogram []UsageBin `json:"histogram"`
}

// Quantiles holds, for some shares of the keys, the value that this share does not exceed.
type Quantiles struct {
	Min  int64 `json:"min"`
	P50  int64 `json:"p50"`
	P75  int64 `json:"p75"`
	P90  int64 `json:"p90"`
	P95  int64 `json:"p95"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p999"`
	Max  int64 `json:"max"`
}

// A UsageBin counts the keys whose demand is above AbovePercent and at most UpToPercent of the
// limit. UpToPercent is 0 for the last bin, which has no upper end.
type UsageBin struct {
	AbovePercent int64 `json:"above_percent"`
	UpToPercent  int64 `json:"up_to_percent"`
	Keys         int64 `json:"keys"`
}

// A Comparison holds the outcome of each algorithm on the requests that reach a limit, at the same
// numbers. It ignores all other limits, so the counts of the limit's own algorithm may differ from
// those of the LimitResult.
type Comparison struct {
	Algorithms []AlgorithmResult `json:"algorithms"` // fixed_window, sliding_log, funnel
	Burst      *Burst            `json:"burst,omitempty"`
	Reason     string            `json:"reason,omitempty"` // the reason why Algorithms is empty
}

// An AlgorithmResult is the outcome of one algorithm.
type AlgorithmResult struct {
	Algorithm  string `json:"algorithm"`
	Own        bool   `json:"own"` // this is the algorithm of the limit
	Denied     int64  `json:"denied"`
	KeysDenied int64  `json:"keys_denied"`
	// Burst is the largest number of admitted hits of one key in any interval as long as the
	// window.
	Burst    int64     `json:"burst"`
	BurstKey string    `json:"burst_key,omitempty"`
	BurstAt  time.Time `json:"burst_at,omitzero"` // the end of that interval
	Error    string    `json:"error,omitempty"`   // the reason why the algorithm rejects these numbers
}

// A Burst is the interval, as long as the window, in which fixed windows admitted the most hits of
// one key. Its series have the hits of that key that each algorithm admitted in the interval, in
// 60 bins of equal length.
type Burst struct {
	Key      string    `json:"key"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Demand   []int64   `json:"demand"` // hits, allowed or denied
	Fixed    []int64   `json:"fixed_window"`
	Log      []int64   `json:"sliding_log"`
	Funnel   []int64   `json:"funnel"`
	Boundary time.Time `json:"boundary,omitzero"` // the start of a fixed window within the interval, if there is one
}

// A LimitClients is the outcome of one limit under one client model.
type LimitClients struct {
	Model      Model `json:"model"`
	Requests   int64 `json:"requests"` // attempts
	Denied     int64 `json:"denied"`   // attempts
	KeysDenied int64 `json:"keys_denied"`
}
