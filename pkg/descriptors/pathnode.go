package descriptors

// A pathNode is a node on the path to a rule: its [NodeSpec] in the form that requests need, and
// its source.
type pathNode struct {
	kind          MatchKind
	isShared      bool   // NodeSpec.ShareThreshold: one counter for all matches
	valueToMetric bool   // NodeSpec.ValueToMetric
	fileOrder     uint32 // from 1; unique in a Builder
	line          uint32 // see SetSource
	from          *source
	key, value    string // the value is the smallest of Values, or the first of Prefixes
	metricName    string // the name in metrics: key, key_value, or key_ and the name of the list
	list          *list  // nil without Values and Prefixes
}

func (n *pathNode) entry() Entry { return Entry{n.key, n.value} }

// values returns the value, or the items of the list; none if n matches every value.
func (n *pathNode) values() []string {
	switch {
	case n.list != nil:
		return n.list.items()
	case n.value == "":
		return nil
	}
	return []string{n.value}
}

// text returns "key=value", or the key if n matches every value. A list is shortened, see
// [list.name].
func (n *pathNode) text() string {
	if n.value == "" {
		return n.key
	}
	return n.key + "=" + n.metricName[len(n.key)+1:]
}
