package descriptors

import (
	"fmt"
	"slices"
	"testing"
)

// A walk that compares a list with the request once for each rule below it would take seconds among
// 10,000 items and as many rules.
func TestLevelOfSeveralRulesIsReadOnce(t *testing.T) {
	b := NewBuilder()
	list := b.Domain("d").Add(Level{Entry: Entry{Key: "k"}, Values: []string{"v1", "v2"}})
	for i := range 3 {
		list.Add(Level{Entry: Entry{Key: "a", Value: fmt.Sprint(i)}}).SetRule(Rule{Unlimited: true})
	}
	d := b.Build().Domain("d")
	names := func(levels []*level) (names []string) {
		for _, l := range levels {
			names = append(names, l.text())
		}
		return names
	}
	if got, want := names(slices.Collect(d.levels())), []string{"k=v1,v2", "a=0", "a=1", "a=2"}; !slices.Equal(got, want) {
		t.Errorf("levels of the domain: %q, want %q", got, want)
	}
	root := node{level: &level{}, below: d.branches()}
	if got, want := names(slices.Collect(root.levelsBelow())), []string{"k=v1,v2"}; !slices.Equal(got, want) {
		t.Errorf("levels below the root: %q, want %q", got, want)
	}
}
