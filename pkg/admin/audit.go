package admin

// A Change is a change of states, made or refused.
type Change struct {
	Who     string // the start of a token's SHA-256, or the subject of a certificate
	Action  string // the path of the route
	Domain  string
	KeyHash string // of the first key; empty if the request names none
	Outcome string // Done, Refused or Failed
	Detail  string // the reason of a refusal, or the size of the change; it has no values of users
}

// The outcomes of a [Change].
const (
	Done    = "done"
	Refused = "refused" // nothing has changed
	Failed  = "failed"  // some keys may have been reset
)
