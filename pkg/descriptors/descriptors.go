// Package descriptors finds the limits that a request falls under.
//
// Envoy describes a request to a rate-limit service by a domain and lists of entries, each a key and a value, such as
// user_id=alice, action=reply. [Rules] are a tree of such entries, with limits at its nodes:
//
//	rule := rules.Match(domain, entries)           // nil: nothing limits these entries
//	key := descriptors.Key(domain, rule, entries)  // names the counter that a limiters.Store keeps
//	for _, l := range rule.Limits { ... }          // each a hit on that key, under l.Limit; none if rule.Unlimited
//
// Rules do not change. A [Builder] makes them; the package rulesfile reads them from YAML with one, and the package
// sources watches where the files are.
package descriptors

// An Entry is a key and a value: of a request, or of a descriptor in the rules. In a rule an empty value matches every
// value.
type Entry struct{ Key, Value string }
