package descriptors_test

import (
	"testing"

	"github.com/weir-rls/weir/pkg/descriptors"
)

func TestFingerprintsTellSetsApart(t *testing.T) {
	file := func(name, data string) descriptors.File { return descriptors.File{Name: name, Data: []byte(data)} }
	seen := map[string]int{}
	for i, files := range [][]descriptors.File{
		nil, {file("", "")}, {file("a", "")}, {file("", "a")}, {file("a", "b")}, {file("ab", "")},
		{file("a", "b"), file("c", "d")}, {file("a", "bc"), file("", "d")},
	} {
		print := descriptors.Fingerprint(files)
		if j, ok := seen[print]; ok {
			t.Errorf("sets %d and %d have one fingerprint", i, j)
		}
		seen[print] = i
	}
}
