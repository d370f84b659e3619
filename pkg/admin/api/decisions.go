package api

import (
	"time"

	"github.com/weir-rls/weir/pkg/explain"
)

// A Subscription receives decisions. Its channel is bounded: a decision that finds it full is
// dropped and counted.
type Subscription struct {
	C       <-chan Decision // closed by Close
	Dropped func() int64    // the number of dropped decisions so far
	Close   func()          // must be called; further calls have no effect
}

// A Filter selects decisions. An empty field selects all.
type Filter struct {
	Domain, Rule, Outcome string
	Entry                 explain.Entry // the descriptor contains it; an empty value stands for any, an empty key for all descriptors
	Sample                float64       // the part of the keys that is selected, by the hash of the key; 0 and 1 select all
}

// A Decision is the outcome of a descriptor.
type Decision struct {
	Time         time.Time       `json:"time" doc:"When the request was decided."`
	Domain       string          `json:"domain" doc:"The domain of the request."`
	Rule         string          `json:"rule" doc:"The path of the rule; empty without one."`
	Limit        string          `json:"limit" doc:"The name of the limit that explains the outcome, or its index in the rule; empty without one."`
	Algorithm    string          `json:"algorithm" doc:"The algorithm of that limit; empty without one."`
	Key          []explain.Entry `json:"key" nullable:"false" doc:"The entries of the descriptor; empty if KEY_HASH_SECRET is set."`
	KeyHash      string          `json:"key_hash" doc:"The hash of the key: 16 hexadecimal digits."`
	Enforced     bool            `json:"enforced" doc:"Whether the response denies the request; false for allowed hits, and if shadow mode or quota mode let the request pass."`
	Outcome      string          `json:"outcome" enum:"allowed,denied,undecided" doc:"The outcome for the descriptor."`
	Reason       string          `json:"reason" doc:"Why: for example within_limit, over_limit or no_rule."`
	Hits         int64           `json:"hits" doc:"The hits of the request: 0 is a peek, less than 0 a refund."`
	Used         int64           `json:"used" doc:"The usage of the key under that limit."`
	Remaining    int64           `json:"remaining" doc:"How many more hits fit under that limit."`
	RetryAfter   string          `json:"retry_after" doc:"When denied hits fit, such as 12.5s; 0s if they were allowed."`
	ResetAfter   string          `json:"reset_after" doc:"When the key has fully reset under that limit."`
	By           string          `json:"by" doc:"What decided: store, cache, policy or share."`
	Replica      string          `json:"replica" doc:"The host name of the process."`
	RulesVersion string          `json:"rules_version" doc:"The version of the rules."`
}
