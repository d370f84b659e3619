package ruleload

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/weir-rls/weir/internal/atomicfile"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources/xds"
)

// The file holds the rules that were saved last. A file that cannot be read or written costs a
// warning and no rules.
func TestReceivedRulesAreSavedAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.json")
	core, logged := observer.New(zap.InfoLevel)
	kept := func() *receivedRules { return newReceivedRules(path, zap.New(core)) }
	if files := kept().read(); files != nil || logged.Len() > 0 {
		t.Errorf("without a file: %v, %v", files, logged.All())
	}
	first := []rulesfile.File{
		{Name: "a", Data: []byte("domain: a\n"), Generated: true},
		{Name: "b", Data: []byte("domain: b\n"), Generated: true},
	}
	for _, files := range [][]rulesfile.File{first, {}} {
		kept().save(files)
		got := kept().read()
		if got == nil || rulesfile.Fingerprint(got) != rulesfile.Fingerprint(files) {
			t.Errorf("read %v, want %v", got, files)
		}
		if slices.ContainsFunc(got, func(f rulesfile.File) bool { return !f.Generated }) {
			t.Errorf("%v: not all files are marked as generated", got)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, error %v, want 0600", info.Mode(), err)
	}
	same := kept()
	same.save(same.read()) // as at the start of a process
	if now, err := os.Stat(path); err != nil || !os.SameFile(now, info) {
		t.Errorf("rules that the file has were written again: %v", err)
	}

	for _, text := range []string{`{"files": [{"name": "a", "rules": "dom`, `{}`, `null`, `{"files": null}`, ""} {
		must.Write(t, path, text)
		files := kept().read()
		warnings := logged.TakeAll()
		want := path + ` is not {"files": [...]} as Weir writes it: remove it, and Weir writes a new one when the control plane sends rules`
		if files != nil || len(warnings) != 1 || !strings.Contains(warnings[0].Message, "saved xDS rules not read") ||
			warnings[0].ContextMap()["error"] != want {
			t.Errorf("%q: read %v, %v, want %s", text, files, warnings, want)
		}
	}
	path = filepath.Join(t.TempDir(), "missing", "rules.json")
	kept().save(first)
	if logged.FilterMessageSnippet("received rules not saved").Len() != 1 {
		t.Errorf("a missing folder: %v", logged.All())
	}
}

// While a disk hangs, rules come into force, and Close ends with its context. Once the disk
// responds, only the last rules are saved.
func TestHangingDiskDelaysNoRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "rules.json")
		l, err := Open(Options{
			XDS: &xds.Source{Server: "test"}, ReceivedPath: path, Log: zap.NewNop(), Loaded: func(*descriptors.Rules, error) {},
		})
		must.Succeed(t, err)
		writes, disk := 0, make(chan struct{})
		l.received.write = func(path string, content func(io.Writer) error) error {
			writes++
			<-disk
			return atomicfile.Write(path, content)
		}
		for _, domain := range []string{"a", "b", "c"} {
			must.Succeed(t, l.load(yaml("domain: "+domain+"\n"), nil))
			synctest.Wait() // until the disk hangs
		}
		l.Reload()
		l.parseOptions()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("closed with %v while the disk hangs, want the error of the context", err)
		}
		close(disk)
		must.Succeed(t, l.Close(t.Context()))
		if files, err := readReceived(path); err != nil || len(files) != 1 || string(files[0].Data) != "domain: c\n" || writes != 2 {
			t.Errorf("saved %v, %v, with %d writes, want the last rules with 2", files, err, writes)
		}
	})
}

// Rules that a full disk kept from the file are saved once there is room.
func TestFailedSaveIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		path := filepath.Join(dir, "rules.json")
		core, logged := observer.New(zap.InfoLevel)
		received := newReceivedRules(path, zap.New(core))
		received.start()
		received.keep([]rulesfile.File{{Name: "a", Data: []byte("domain: a\n")}})
		time.Sleep(5 * saveRetryInterval)
		if n := logged.FilterMessage("received rules not saved").Len(); n != 1 {
			t.Errorf("%d warnings for one outage, want 1: %v", n, logged.All())
		}
		must.Succeed(t, os.Mkdir(dir, 0o700))
		time.Sleep(2 * saveRetryInterval)
		if files, err := readReceived(path); err != nil || len(files) != 1 || files[0].Name != "a" {
			t.Errorf("read %v, %v, want the rules", files, err)
		}
		must.Succeed(t, os.Remove(path))
		time.Sleep(2 * saveRetryInterval)
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("saved rules were written again: %v", err)
		}
		if n := logged.FilterMessage("received rules saved").Len(); n != 1 {
			t.Errorf("%d lines for one return, want 1: %v", n, logged.All())
		}
		must.Succeed(t, received.close(t.Context()))
	})
}
