package yamltree

import (
	"strings"
	"testing"
)

// read returns the only document of text.
func read(t *testing.T, text string) Tree {
	t.Helper()
	documents, err := Read("f.yaml", []byte(text))
	if err != nil || len(documents) != 1 {
		t.Fatalf("%d documents, %v", len(documents), err)
	}
	return documents[0]
}

// Only names of protobuf fields have a second spelling.
func TestOnlyFieldAcceptsCamelCase(t *testing.T) {
	tree := read(t, "{a_b: 1, cD: 2, x: {yZ: 3}}")
	for name, c := range map[string]struct {
		got  Tree
		want string
	}{
		"Get":                    {tree.Get("a_b"), "1"},
		"Get of camelCase":       {tree.Get("c_d"), ""},
		"Field":                  {tree.Field("a_b"), "1"},
		"Field of camelCase":     {tree.Field("c_d"), "2"},
		"Field of a path":        {tree.Field("x", "y_z"), "3"},
		"Get of an absent path":  {tree.Get("none", "y_z"), ""},
		"the last duplicate key": {read(t, "{a: 1, a: 2}").Get("a"), "2"},
	} {
		if c.got.Text() != c.want {
			t.Errorf("%s: got %q, want %q", name, c.got.Text(), c.want)
		}
	}
}

func TestBooleansOfYAML11(t *testing.T) {
	isTrue, isFalse, neither := [2]bool{true, false}, [2]bool{false, true}, [2]bool{}
	for text, want := range map[string][2]bool{
		"true": isTrue, "yes": isTrue, "On": isTrue, `"true"`: isTrue,
		"false": isFalse, "no": isFalse, `"false"`: isFalse,
		`"yes"`: neither, "maybe": neither, "null": neither, "[true]": neither, "1": neither,
	} {
		value := read(t, "a: "+text).Get("a")
		if got := [2]bool{value.IsTrue(), value.IsFalse()}; got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
	if absent := (Tree{}); absent.IsTrue() || absent.IsFalse() {
		t.Error("an absent value is a boolean")
	}
}

func TestAliasesAreReplacedByTheirValues(t *testing.T) {
	tree := read(t, "a: &x {b: 1}\nc: [*x, *x]\n")
	if items := tree.Get("c").Items(); len(items) != 2 || items[1].Get("b").Text() != "1" {
		t.Errorf("got %v", items)
	}
}

// The bound holds for all documents of a file together.
func TestFilesThatAreTooLargeWithTheirAliasesAreRejected(t *testing.T) {
	levels := func(n int) string {
		var b strings.Builder
		b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
		for i := range n {
			alias := "*a" + string(rune('0'+i)) + ", "
			b.WriteString("a" + string(rune('1'+i)) + ": &a" + string(rune('1'+i)) + " [" + strings.TrimSuffix(strings.Repeat(alias, 10), ", ") + "]\n")
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"one document":     levels(6),
		"many documents":   strings.Repeat("---\n"+levels(4), 10),
		"an endless alias": "a: &a {b: *a}\n",
		"too deep":         strings.Repeat("[", 300) + strings.Repeat("]", 300),
	} {
		if _, err := Read("f.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), "pass only the part") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := Read("f.yaml", []byte(levels(4))); err != nil {
		t.Errorf("one of these documents: %v", err)
	}
}
