// Package descriptors says which limits a request falls under.
//
// Envoy describes a request to a rate-limit service by a domain and lists of entries, each a key and a value, such as
// user_id=alice, action=reply. Rules, written in YAML in the grammar of envoyproxy/ratelimit, form a tree of such
// entries, and limits stand at its nodes. The way of a request through this package is short:
//
//	rules, err := descriptors.Parse(files...)      // all faults at once, each with file, line and column
//	rule := rules.Match(domain, entries)           // nil: nothing limits these entries
//	key := descriptors.Key(domain, rule, entries)  // names the counter that a limiters.Store keeps
//	for _, l := range rule.Limits { ... }          // each a hit on that key, under l.Limit; none if rule.Unlimited
//
// [Rules] do not change once parsed; [Live] holds the current ones and swaps them whole. Where rules come from is the
// matter of the package sources.
package descriptors

// An Entry is a key and a value that Envoy says of a request, or that a rule asks for. In a rule an empty value stands
// for any value.
type Entry struct{ Key, Value string }

// A File is the text of one file of rules.
type File struct {
	Name string // as faults tell it
	Data []byte // YAML; Parse does not keep it
}
