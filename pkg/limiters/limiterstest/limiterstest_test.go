package limiterstest

import (
	"flag"
	"io/fs"
	"os"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

var update = flag.Bool("update", false, "rewrite testdata as the reference answers; review the diff")

func TestReferencePassesTheSuite(t *testing.T) {
	Run(t, func(*testing.T) TimedStore { return NewReference() })
}

func TestUpdateRewritesTraces(t *testing.T) {
	if !*update {
		t.Skip("without -update; the suite compares the traces")
	}
	names, err := fs.Glob(traceFiles, "testdata/*.txt")
	must.Succeed(t, err)
	for _, name := range names {
		text, err := traceFiles.ReadFile(name)
		must.Succeed(t, err)
		got, _, err := replay(NewReference(), name, string(text))
		must.Succeed(t, err)
		must.Succeed(t, os.WriteFile(name, []byte(got), 0o644))
	}
}
