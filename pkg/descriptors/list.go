package descriptors

import "net/netip"

// A list holds the values or the prefixes of a node in file order. It is never empty.
type list struct {
	values   []string
	prefixes []netip.Prefix
	siblings *prefixTable // the prefixes of this list and of its siblings with the same key; nil for values, and before Build
}

// name returns the items joined by commas. Beyond 64 bytes it is truncated and ends with ",...",
// but it always contains the first item, so that two lists at one level have different names.
func (l *list) name() string {
	const maximum = 64
	items := l.items()
	name := items[0]
	for _, item := range items[1:] {
		if len(name)+len(item) >= maximum {
			return name + ",..."
		}
		name += "," + item
	}
	return name
}

// items returns the values, or the texts of the prefixes. Callers must not modify them.
func (l *list) items() []string {
	if len(l.prefixes) == 0 {
		return l.values
	}
	items := make([]string, len(l.prefixes))
	for i, prefix := range l.prefixes {
		items[i] = prefix.String()
	}
	return items
}
