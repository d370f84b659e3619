package api

import (
	"time"

	"github.com/weir-rls/weir/pkg/explain"
)

// A Top is a list of the busiest keys. Its counts are estimates of a sketch: no count is too small,
// and none exceeds the true count by more than its error. At high rates the sketch counts a sample.
// Then this holds for a key with a probability of at least 99.9 %.
type Top struct {
	Since time.Time `json:"since" doc:"The counts are those since then: the last one to two minutes."`
	Total int64     `json:"total" doc:"All hits that the sketch has counted; an estimate if it counted a sample."`
	Error int64     `json:"error" doc:"The largest error of any count. A key that the sketch does not keep has at most this count. Keys beyond limit or of other domains may have more."`
	Keys  []TopKey  `json:"keys" nullable:"false" doc:"The keys, the busiest first."`
}

// A TopOrder selects the hits that order a Top.
type TopOrder string

// The orders.
const (
	ByHits   TopOrder = "hits"   // all requested hits
	ByDenied TopOrder = "denied" // the denied hits, in shadow mode too, with a denied peek as one hit
)

// A TopKey is a key with its count.
type TopKey struct {
	Domain  string          `json:"domain" doc:"The domain of the key."`
	Rule    string          `json:"rule" doc:"The path of the rule; empty for a limit in the request."`
	Key     []explain.Entry `json:"key" nullable:"false" doc:"The entries of the descriptor; empty if KEY_HASH_SECRET is set."`
	KeyHash string          `json:"key_hash" doc:"The hash of the key: 16 hexadecimal digits."`
	Count   int64           `json:"count" doc:"The estimated hits: at least the true count. Above 10,000 decisions a second the sketch counts a sample. The true count is then between count - error and count with a probability of at least 99.9 %."`
	Error   int64           `json:"error" doc:"By how much the count may be too large, including the error of a sample."`
}
