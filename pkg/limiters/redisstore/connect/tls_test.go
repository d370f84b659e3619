package connect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/certtest"
)

func TestTLSFileErrors(t *testing.T) {
	authority := certtest.New(t)
	own, other := authority.Issue(t, "weir"), authority.Issue(t, "weir")
	junk := filepath.Join(t.TempDir(), "junk.pem")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		files TLSFiles
		err   string
	}{
		{TLSFiles{Cert: own.Cert}, own.Cert + " has no key"},
		{TLSFiles{Key: own.Key}, own.Key + " has no client certificate"},
		{TLSFiles{Cert: own.Cert, Key: other.Key}, "private key does not match"},
		{TLSFiles{Cert: junk, Key: own.Key}, junk},
		{TLSFiles{CA: junk}, "no certificate in " + junk},
		{TLSFiles{CA: junk + "x"}, "no such file"},
	} {
		if _, err := c.files.Config(); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: %v, want %q", c.files, err, c.err)
		}
	}
}
