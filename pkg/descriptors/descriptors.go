// Package descriptors matches the descriptors of a request to limits.
//
// Envoy sends a domain and descriptors, which are lists of entries such as user_id=alice,
// action=reply. [Rules] are a tree of entries with limits at its nodes:
//
//	rule := rules.Match(domain, entries)           // nil: no limit applies
//	key := descriptors.Key(domain, rule, entries)  // the name of the counter in a limiters.Store
//	for _, l := range rule.Limits { ... }          // a hit on key for each; none if rule.Unlimited
//
// Rules are immutable. A [Builder] builds them. Package rulesfile parses them from YAML, and
// package sources watches their files.
package descriptors

// An Entry is a key and a value, of a request or of a rule. In a rule, an empty value matches every
// value.
type Entry struct{ Key, Value string }

// String returns key=value without escapes, for people.
func (e Entry) String() string { return e.Key + "=" + e.Value }
