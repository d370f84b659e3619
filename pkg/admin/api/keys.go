package api

import "github.com/weir-rls/weir/pkg/explain"

// A KeyRequest names a key by its descriptor.
type KeyRequest struct {
	Domain     string          `json:"domain" minLength:"1" maxLength:"4096" example:"shop" doc:"The domain of the request."`
	Descriptor []explain.Entry `json:"descriptor" minItems:"1" maxItems:"64" nullable:"false" example:"[[\"user_id\",\"42\"]]" doc:"The entries of the descriptor, in order. The id of a lease may be left out."`
}

// A KeyState is the state of a key.
type KeyState struct {
	Domain       string          `json:"domain" doc:"The domain of the request."`
	Descriptor   []explain.Entry `json:"descriptor" nullable:"false" doc:"The descriptor of the request."`
	RulesVersion string          `json:"rules_version" doc:"The version of the rules in force."`
	Limits       []LimitState    `json:"limits" nullable:"false" doc:"The limits of the descriptor. A rule that limits nothing has none: see reason."`
	Unlimited    bool            `json:"unlimited" doc:"The rule of the descriptor allows everything."`
	Reason       string          `json:"reason" doc:"Why there is no limit; empty if there is one."`
	Hint         string          `json:"hint,omitempty" doc:"The probable misspelling of a key, if there is no limit because of it."`
}

// A LimitState is a limit with the state of a key under it.
type LimitState struct {
	RuleLimit
	Rule    string        `json:"rule" doc:"The path of the rule."`
	Source  string        `json:"source" doc:"The file and line of the rule, or the name of the xDS resource; empty if unknown."`
	Mode    string        `json:"mode" enum:"enforced,shadow,quota" doc:"Whether the rule can deny requests."`
	Key     string        `json:"key" doc:"The key of the counter; empty if KEY_HASH_SECRET is set."`
	KeyHash string        `json:"key_hash" doc:"The hash of the key: 16 hexadecimal digits. Logs name a key by it."`
	Allowed bool          `json:"allowed" doc:"Whether one more hit is allowed now."`
	State   explain.State `json:"state" doc:"The state of the key under this limit."`
}

// A KeyReset is the result of a reset.
type KeyReset struct {
	Domain       string          `json:"domain" doc:"The domain of the request."`
	Descriptor   []explain.Entry `json:"descriptor" nullable:"false" doc:"The descriptor of the request."`
	RulesVersion string          `json:"rules_version" doc:"The version of the rules in force."`
	Limits       []LimitReset    `json:"limits" nullable:"false" doc:"The limits of the descriptor. A limit that came with a request is not one of them: its state stays."`
	Notified     bool            `json:"replicas_notified" doc:"Whether the other replicas were notified to forget the key. If not, they may deny it until DENY_CACHE_MAX has passed, and charge denied hits that they hold."`
}

// A LimitReset is a limit whose state was reset.
type LimitReset struct {
	Rule    string `json:"rule" doc:"The path of the rule."`
	Name    string `json:"name" doc:"The name of the limit in the rules, or empty."`
	Source  string `json:"source" doc:"The file and line of the rule, or the name of the xDS resource; empty if unknown."`
	KeyHash string `json:"key_hash" doc:"The hash of the key: 16 hexadecimal digits."`
	Reset   bool   `json:"reset" doc:"Whether the key had a state under this limit."`
}

// A ResetByEntryRequest asks to reset every key that contains an entry.
type ResetByEntryRequest struct {
	Domain string        `json:"domain" minLength:"1" maxLength:"4096" example:"shop" doc:"The domain of the keys."`
	Entry  explain.Entry `json:"entry" example:"[\"user_id\",\"42\"]" doc:"The entry: a key and a value."`
	Cursor string        `json:"cursor,omitempty" maxLength:"1024" doc:"The cursor of the previous step; empty for the first step."`
}

// A ResetByEntryResult is the result of one step.
type ResetByEntryResult struct {
	Scanned  int64  `json:"scanned" doc:"Keys that this step has seen."`
	Reset    int64  `json:"reset" doc:"Keys that this step has reset."`
	Cursor   string `json:"cursor" doc:"Send it in the next step; empty when the pass is complete."`
	Done     bool   `json:"done" doc:"Whether the pass is complete."`
	Notified bool   `json:"replicas_notified" doc:"Whether the other replicas were notified to forget these keys."`
}
