package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/weir-rls/weir/tools/image/oci"
	"google.golang.org/protobuf/encoding/protojson"
	"helm.sh/helm/v3/pkg/chart/loader"
)

const platform = "linux/amd64"

// TestReleaseIsReproducible builds the last commit for one platform. make release-verify builds all
// platforms, and the second time without a build cache.
func TestReleaseIsReproducible(t *testing.T) {
	t.Parallel()
	root := clone(t)
	out := filepath.Join(t.TempDir(), "release")
	o := options{root: root, out: out, name: "registry.example/weir", platforms: []string{platform}}
	must(t, reproduce(t.Context(), o, false, io.Discard))
	bill := only(t, out, "weir-*-linux-amd64.cdx.json", "-image-")
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(bill), "weir-"), "-linux-amd64.cdx.json")

	t.Run("sums", func(t *testing.T) { checkSums(t, out) })
	t.Run("binary", func(t *testing.T) { checkBinary(t, root, out, version) })
	t.Run("provenance", func(t *testing.T) { checkProvenance(t, root, out, version) })
	t.Run("chart", func(t *testing.T) {
		c, err := loader.LoadFile(filepath.Join(out, "weir-"+strings.TrimPrefix(version, "v")+".tgz"))
		must(t, err)
		must(t, c.Validate())
		if want := strings.ReplaceAll(version, "+", "-"); c.Metadata.AppVersion != want {
			t.Errorf("appVersion %s, want %s", c.Metadata.AppVersion, want)
		}
		if got := c.Values["image"].(map[string]any)["repository"]; got != o.name {
			t.Errorf("the image is %v, want %s", got, o.name)
		}
	})
	t.Run("push", func(t *testing.T) { checkPush(t, only(t, out, "*-image.oci.tar", "")) })
	t.Run("wrong version", func(t *testing.T) {
		o := o
		o.version = "v9.8.7"
		if err := release(t.Context(), o, io.Discard); err == nil || !strings.Contains(err.Error(), "git tag v9.8.7") {
			t.Errorf("%v, want the command that creates the tag", err)
		}
		checkSums(t, out)
	})
}

func TestDirtyTreeIsRefused(t *testing.T) {
	t.Parallel()
	root := clone(t)
	out := filepath.Join(t.TempDir(), "release")
	for _, name := range []string{"LICENSE", "untracked.go"} {
		must(t, os.WriteFile(filepath.Join(root, name), []byte("changed"), 0o644))
		err := release(t.Context(), options{root: root, out: out, platforms: []string{platform}}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "the tree differs from its commit") || !strings.Contains(err.Error(), "LICENSE") {
			t.Errorf("after a change of %s: %v", name, err)
		}
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it wrote %s: %v", out, err)
	}
}

// clone clones the last commit, so uncommitted changes do not count.
func clone(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	must(t, err)
	if _, err := os.Stat(filepath.Join(root, ".git")); errors.Is(err, os.ErrNotExist) {
		t.Skip("a release needs a checkout with git")
	}
	dir := filepath.Join(t.TempDir(), "clone")
	_, err = git(t.Context(), root, "clone", "-q", root, dir)
	must(t, err)
	return dir
}

// only returns the only file of the pattern whose name does not contain the text but.
func only(t *testing.T, dir, pattern, but string) string {
	t.Helper()
	all := slices.DeleteFunc(files(t, dir, pattern), func(path string) bool { return but != "" && strings.Contains(path, but) })
	if len(all) != 1 {
		t.Fatalf("%s: %q, want one file", pattern, all)
	}
	return all[0]
}

// checkSums verifies SHA256SUMS and expects each file in it.
func checkSums(t *testing.T, out string) {
	t.Helper()
	listed, err := os.ReadFile(filepath.Join(out, sums))
	must(t, err)
	all, err := digests(out)
	must(t, err)
	all = slices.DeleteFunc(all, func(d digest) bool { return d.name == sums })
	if len(all) != 7 || all.String() != string(listed) {
		t.Errorf("the files are\n%s\nand %s has\n%s", all, sums, listed)
	}
	if program, err := exec.LookPath("sha256sum"); err == nil {
		cmd := exec.CommandContext(t.Context(), program, "-c", sums)
		cmd.Dir = out
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, output)
		}
	}
}

// checkBinary starts the binary of the archive, and compares its modules with the bill of
// materials.
func checkBinary(t *testing.T, root, out, version string) {
	stem := "weir-" + version + "-linux-amd64"
	f, err := os.Open(filepath.Join(out, stem+".tar.gz"))
	must(t, err)
	defer f.Close()
	unzipped, err := gzip.NewReader(bufio.NewReader(f))
	must(t, err)
	path := filepath.Join(t.TempDir(), "weir")
	var names []string
	for archive := tar.NewReader(unzipped); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		names = append(names, h.Name)
		data, err := io.ReadAll(archive)
		must(t, err)
		if h.Name == stem+"/weir" {
			must(t, os.WriteFile(path, data, h.FileInfo().Mode()))
		}
	}
	if want := []string{stem + "/weir", stem + "/LICENSE", stem + "/README.md"}; !slices.Equal(names, want) {
		t.Fatalf("the archive has %q, want %q", names, want)
	}
	commit, err := git(t.Context(), root, "rev-parse", "HEAD")
	must(t, err)
	if runtime.GOOS+"/"+runtime.GOARCH == platform {
		got, err := exec.CommandContext(t.Context(), path, "version").Output()
		if want := "weir " + version + " " + strings.TrimSpace(commit) + " " + runtime.Version() + "\n"; err != nil || string(got) != want {
			t.Errorf("weir version: %q, %v; want %q", got, err, want)
		}
	}
	var bom cdx.BOM
	data, err := os.ReadFile(filepath.Join(out, stem+".cdx.json"))
	must(t, err)
	must(t, cdx.NewBOMDecoder(bytes.NewReader(data), cdx.BOMFileFormatJSON).Decode(&bom))
	var listed []string
	for _, c := range *bom.Components {
		listed = append(listed, c.PackageURL)
	}
	info, err := buildinfo.ReadFile(path)
	must(t, err)
	want := []string{oci.PackageURL("stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		want = append(want, oci.PackageURL(m.Path, m.Version))
	}
	slices.Sort(listed)
	slices.Sort(want)
	if !slices.Equal(listed, want) {
		t.Errorf("the bill of materials has %q, the binary %q", listed, want)
	}
}

// checkProvenance expects each file as a subject, and the commit as the first input.
func checkProvenance(t *testing.T, root, out, version string) {
	data, err := os.ReadFile(filepath.Join(out, "weir-"+version+".intoto.json"))
	must(t, err)
	var statement intoto.Statement
	must(t, protojson.Unmarshal(data, &statement))
	must(t, statement.Validate())
	var got digestList
	for _, s := range statement.Subject {
		got = append(got, digest{s.Name, s.Digest["sha256"]})
	}
	want, err := digests(out)
	must(t, err)
	want = slices.DeleteFunc(want, func(d digest) bool { return d.name == sums || strings.HasSuffix(d.name, ".intoto.json") })
	if !slices.Equal(got, want) {
		t.Errorf("the subjects are\n%s\nand the files\n%s", got, want)
	}
	predicate, err := protojson.Marshal(statement.Predicate)
	must(t, err)
	var p slsa.Provenance
	must(t, protojson.Unmarshal(predicate, &p))
	must(t, p.Validate())
	commit, err := git(t.Context(), root, "rev-parse", "HEAD")
	must(t, err)
	inputs := p.BuildDefinition.ResolvedDependencies
	if statement.PredicateType != predicateType || inputs[0].Digest["gitCommit"] != strings.TrimSpace(commit) || len(inputs) < 20 {
		t.Errorf("%s of %d inputs, the first is %v, want the commit %s", statement.PredicateType, len(inputs), inputs[0], commit)
	}
	if p.RunDetails.Metadata != nil {
		t.Errorf("the metadata %v differs between builds", p.RunDetails.Metadata)
	}
}

// checkPush pushes the image to a registry and reads it back.
func checkPush(t *testing.T, archive string) {
	dir := t.TempDir()
	if output, err := exec.CommandContext(t.Context(), "tar", "-xf", archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	var printed bytes.Buffer
	must(t, push(t.Context(), dir, strings.TrimPrefix(server.URL, "http://")+"/weir", &printed))
	ref, err := name.NewDigest(strings.TrimSpace(printed.String()))
	must(t, err)
	index, err := remote.Index(ref)
	must(t, err)
	must(t, validate.Index(index))
	manifest, err := index.IndexManifest()
	must(t, err)
	if len(manifest.Manifests) != 2 {
		t.Errorf("the registry has %+v, want an image and its bill of materials", manifest)
	}
}
