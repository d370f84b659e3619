package admin

// A Change is a change of states that a caller has made, or that was refused.
type Change struct {
	Who     string // a token's SHA-256, cut, or the subject of a certificate
	Action  string // the path of the route
	Domain  string
	KeyHash string // of the first key; empty if the request names none
	Outcome string // Done, Refused or Failed
	Detail  string // why it was refused, or how much was changed; without values of users
}

// The outcomes of a [Change].
const (
	Done    = "done"
	Refused = "refused" // nothing has changed
	Failed  = "failed"  // some keys may have been reset
)
