package sources_test

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources"
)

// link creates or replaces a symbolic link by a rename, as ln -sfn and Kubernetes do.
func link(t testing.TB, target, path string) {
	t.Helper()
	must.Succeed(t, os.Symlink(target, path+".new"))
	must.Succeed(t, os.Rename(path+".new", path))
}

// text returns "name=text name=text".
func text(files []rulesfile.File) string {
	var parts []string
	for _, f := range files {
		parts = append(parts, f.Name+"="+string(f.Data))
	}
	return strings.Join(parts, " ")
}

func TestReadFolderSkipsDotfiles(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	must.Write(t, dir+"/b.yaml", "1")
	must.Write(t, dir+"/a/z.yaml", "2")
	must.Write(t, dir+"/a.txt", "3")
	must.Write(t, dir+"/.hidden", "no")
	must.Write(t, dir+"/..2024/c.yaml", "4")
	link(t, "..2024", dir+"/..data")
	link(t, "..data/c.yaml", dir+"/c.yaml")
	must.Write(t, other+"/deep/d.yaml", "5")
	link(t, other, dir+"/linked")
	must.Succeed(t, syscall.Mkfifo(dir+"/pipe", 0o600))
	files, err := sources.NewWatcher(dir).Read()
	if want := "a.txt=3 a/z.yaml=2 b.yaml=1 c.yaml=4 linked/deep/d.yaml=5"; err != nil || text(files) != want {
		t.Errorf("got %q, %v\nwant %q", text(files), err, want)
	}
	files, err = sources.Read(other)
	if want := other + "/deep/d.yaml=5"; err != nil || text(files) != want {
		t.Errorf("got %q, %v\nwant %q", text(files), err, want)
	}
}

func TestReadFileFollowsLink(t *testing.T) {
	dir := t.TempDir()
	must.Write(t, dir+"/real", "1")
	link(t, "real", dir+"/rules.yaml")
	files, err := sources.Read(dir + "/rules.yaml")
	if want := dir + "/rules.yaml=1"; err != nil || text(files) != want {
		t.Errorf("got %q, %v\nwant %q", text(files), err, want)
	}
}

func TestLargestFileIsRead(t *testing.T) {
	path := t.TempDir() + "/rules.yaml"
	must.Write(t, path, "")
	must.Succeed(t, os.Truncate(path, sources.MaxFileBytes))
	if files, err := sources.Read(path); err != nil || len(files) != 1 || len(files[0].Data) != sources.MaxFileBytes {
		t.Errorf("read %d files, %v, want one of %d bytes", len(files), err, sources.MaxFileBytes)
	}
}

func TestReadErrorsNameThePath(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(t *testing.T, dir string)
		want string // the error, without the path of the folder
	}{
		{"missing", func(t *testing.T, dir string) { must.Succeed(t, os.Remove(dir)) }, "read : no such file or directory"},
		{"empty", func(*testing.T, string) {}, "read : no rules file in this folder"},
		{"only hidden", func(t *testing.T, dir string) { must.Write(t, dir+"/.a", "") },
			"read : no rules file in this folder"},
		{"dangling", func(t *testing.T, dir string) {
			must.Write(t, dir+"/b", "")
			link(t, "nowhere", dir+"/a")
		}, "read /a: no such file or directory"},
		{"circle", func(t *testing.T, dir string) {
			must.Write(t, dir+"/a/b", "")
			link(t, "..", dir+"/a/up")
		}, "read /a/up: a symbolic link to one of its own parent folders: remove the link"},
		{"not a file", func(t *testing.T, dir string) {
			must.Succeed(t, os.Remove(dir))
			must.Succeed(t, syscall.Mkfifo(dir, 0o600))
		}, "read : neither a file nor a folder: name a rules file or a folder of rules files"},
		{"large", func(t *testing.T, dir string) {
			must.Write(t, dir+"/a", "")
			must.Succeed(t, os.Truncate(dir+"/a", sources.MaxFileBytes+1))
		}, "read /a: larger than 16777216 bytes, the maximum for a rules file: split it"},
		{"many", func(t *testing.T, dir string) {
			must.Write(t, dir+"/0/file", "")
			for i := range 5 {
				// Eight links a level: 8^5 paths to the file.
				must.Succeed(t, os.Mkdir(dir+"/"+string(rune('1'+i)), 0o755))
				for j := range 8 {
					link(t, "../"+string(rune('0'+i)), dir+"/"+string(rune('1'+i))+"/"+string(rune('a'+j)))
				}
			}
		}, "more than 10000 files and folders"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir() + "/rules"
			must.Succeed(t, os.Mkdir(dir, 0o755))
			tt.make(t, dir)
			files, err := sources.Read(dir)
			if err == nil || files != nil || !strings.Contains(strings.ReplaceAll(err.Error(), dir, ""), tt.want) {
				t.Errorf("got %v, %v\nwant %s", text(files), err, tt.want)
			}
		})
	}
}
