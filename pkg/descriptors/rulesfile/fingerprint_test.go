package rulesfile_test

import (
	"testing"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

func TestFingerprintDistinguishesFiles(t *testing.T) {
	file := func(name, data string) rulesfile.File { return rulesfile.File{Name: name, Data: []byte(data)} }
	seen := map[string]int{}
	for i, files := range [][]rulesfile.File{
		nil, {file("", "")}, {file("a", "")}, {file("", "a")}, {file("a", "b")}, {file("ab", "")},
		{file("a", "b"), file("c", "d")}, {file("a", "bc"), file("", "d")},
	} {
		fingerprint := rulesfile.Fingerprint(files)
		if j, ok := seen[fingerprint]; ok {
			t.Errorf("sets %d and %d have one fingerprint", i, j)
		}
		seen[fingerprint] = i
	}
}
