package tlsfiles

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-rls/weir/internal/certtest"
)

const nobody = 65534

// asNobody runs f on a thread that may read only what others may read. Root may read every file.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		f()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setfsuid(nobody); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setfsuid(0); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

// A renewed key may become readable a moment after it was written: chown and chmod change neither its size nor its
// modification time.
func TestServerReloadsUnreadableKeyOnceReadable(t *testing.T) {
	dir := t.TempDir()
	ca, pair := certtest.New(t), certtest.Pair{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	issue := func(name string) {
		ca.IssueTo(t, pair, name)
		if os.Getuid() == 0 {
			for _, path := range []string{filepath.Dir(dir), dir, pair.Cert, pair.Key} {
				if err := os.Chown(path, nobody, nobody); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	chmod := func(mode os.FileMode) {
		if err := os.Chmod(pair.Key, mode); err != nil {
			t.Fatal(err)
		}
	}
	issue("first")
	failures := 0
	config, err := Server{Cert: pair.Cert, Key: pair.Key}.Config(func(error) { failures++ })
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		asNobody(t, func() {
			now, err := config.GetConfigForClient(nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := now.Certificates[0].Leaf.DNSNames[0]; got != want {
				t.Errorf("the certificate of %q is served, want that of %q", got, want)
			}
		})
	}
	expect("first")
	issue("second")
	chmod(0)
	expect("first")
	expect("first")
	if failures != 1 {
		t.Errorf("%d errors reported, want 1", failures)
	}
	chmod(0o600)
	expect("second")
	issue("third")
	chmod(0)
	expect("second")
	if failures != 2 {
		t.Errorf("%d errors reported, want 2: one for each certificate that could not be read", failures)
	}
}
