package descriptors

import (
	"fmt"
	"testing"
)

// A walk compares a list with the request once, not once for each rule below it.
func TestNodeOfSeveralRulesIsReadOnce(t *testing.T) {
	b := NewBuilder()
	list := b.Domain("d").Add(NodeSpec{Entry: Entry{Key: "k"}, Values: []string{"v1", "v2"}})
	for i := range 3 {
		list.Add(NodeSpec{Entry: Entry{Key: "a", Value: fmt.Sprint(i)}}).SetRule(Rule{Unlimited: true})
	}
	root, all := b.Build().Domain("d").tree()
	if len(all) != 4 || len(root.children) != 1 || len(root.children[0].children) != 3 {
		t.Errorf("%d nodes, %d below the root, want 4 and 1", len(all), len(root.children))
	}
}
