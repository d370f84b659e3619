package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/weir-rls/weir/tools/image/oci"
)

const cycloneDX = "application/vnd.cyclonedx+json"

// most is the largest allowed size of an image in bytes, as transferred.
const most = 25_000_000

// This test reads back the bytes that a registry would receive, without the code that wrote them.
func TestImageHasConfigFilesAndBillOfMaterials(t *testing.T) {
	out := t.TempDir()
	o := oci.Options{Root: filepath.Join("..", ".."), Out: out, Name: "registry.example/weir", Tag: "v1.2.3", Archs: []string{"amd64", "arm64"}}
	var report bytes.Buffer
	must(t, oci.Run(o, &report))
	index := read(t, filepath.Join(out, "oci"), "v1.2.3")
	must(t, validate.Index(index))
	manifest, err := index.IndexManifest()
	must(t, err)
	if manifest.MediaType != types.OCIImageIndex || len(manifest.Manifests) != 4 {
		t.Fatalf("the index is %+v, want 2 images and a bill of materials of each", manifest)
	}
	for i, arch := range o.Archs {
		t.Run(arch, func(t *testing.T) {
			entry, bill := manifest.Manifests[i], manifest.Manifests[2+i]
			if got := *entry.Platform; !reflect.DeepEqual(got, v1.Platform{OS: "linux", Architecture: arch}) {
				t.Errorf("the platform is %v", got)
			}
			image, err := index.Image(entry.Digest)
			must(t, err)
			file := checkConfig(t, image, arch)
			if !reflect.DeepEqual(manifest.Annotations, file.Config.Labels) {
				t.Errorf("annotations %v, labels %v", manifest.Annotations, file.Config.Labels)
			}
			binary := checkFiles(t, image, file.Created.Time)
			checkBinary(t, binary, arch)
			checkBill(t, index, bill, entry, filepath.Join(out, "weir-linux-"+arch+".cdx.json"))

			loadable, err := tarball.ImageFromPath(filepath.Join(out, "weir-linux-"+arch+".tar"), nil)
			must(t, err)
			if a, b := configName(t, loadable), configName(t, image); a != b {
				t.Errorf("docker load gets %v, the layout has %v", a, b)
			}
			if line := fmt.Sprintf("linux/%s %s, ", arch, entry.Digest); !strings.Contains(report.String(), line) {
				t.Errorf("reported %q, want %q", &report, line)
			}
		})
	}

	t.Run("a second build replaces the first, and equal input gives an equal digest", func(t *testing.T) {
		o := o
		o.Tag, o.Archs = "v2", o.Archs[1:]
		must(t, oci.Run(o, io.Discard))
		index := read(t, filepath.Join(out, "oci"), "v2")
		again, err := index.IndexManifest()
		must(t, err)
		if len(again.Manifests) != 2 || again.Manifests[0].Digest != manifest.Manifests[1].Digest ||
			again.Manifests[1].Digest != manifest.Manifests[3].Digest {
			t.Errorf("first %+v, then %+v", manifest, again)
		}
	})
}

// read opens the only index of a layout.
func read(t *testing.T, dir, tag string) v1.ImageIndex {
	t.Helper()
	all, err := layout.ImageIndexFromPath(dir)
	must(t, err)
	manifest, err := all.IndexManifest()
	must(t, err)
	if len(manifest.Manifests) != 1 {
		t.Fatalf("the layout has %d entries, want one: tools would have to be told which", len(manifest.Manifests))
	}
	entry := manifest.Manifests[0]
	if got := entry.Annotations["org.opencontainers.image.ref.name"]; got != tag {
		t.Errorf("the layout's tag is %q, want %q", got, tag)
	}
	index, err := all.ImageIndex(entry.Digest)
	must(t, err)
	return index
}

func checkConfig(t *testing.T, image v1.Image, arch string) *v1.ConfigFile {
	t.Helper()
	file, err := image.ConfigFile()
	must(t, err)
	labels := file.Config.Labels
	file.Config.Labels = nil
	want := v1.Config{
		User: "65534:65534", Entrypoint: []string{"/bin/weir"}, Cmd: []string{"serve"}, WorkingDir: "/",
		Env: []string{"PATH=/bin"}, ExposedPorts: map[string]struct{}{"8080/tcp": {}, "8081/tcp": {}},
	}
	if !reflect.DeepEqual(file.Config, want) {
		t.Errorf("the configuration is %+v, want %+v", file.Config, want)
	}
	file.Config.Labels = labels
	if file.OS != "linux" || file.Architecture != arch {
		t.Errorf("for %s/%s", file.OS, file.Architecture)
	}
	for name, want := range map[string]string{
		"title": "Weir", "description": "A rate limit service for Envoy.", "licenses": "Apache-2.0",
		"source": "https://github.com/weir-rls/weir", "documentation": "https://github.com/weir-rls/weir",
		"version": ".+", "created": regexp.QuoteMeta(file.Created.Format(time.RFC3339)),
	} {
		if got := labels["org.opencontainers.image."+name]; !regexp.MustCompile("^" + want + "$").MatchString(got) {
			t.Errorf("label %s is %q, want %q", name, got, want)
		}
	}
	if commit := head(t); commit != "" && labels["org.opencontainers.image.revision"] != commit {
		t.Errorf("the revision is %q, want %q", labels["org.opencontainers.image.revision"], commit)
	}
	return file
}

// head returns the checked-out commit, or "" outside a checkout.
func head(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join("..", "..", ".git")); errors.Is(err, os.ErrNotExist) {
		return ""
	}
	out, err := exec.Command("git", "rev-parse", "HEAD").Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

// checkFiles compares everything in the image with a list and returns the binary.
func checkFiles(t *testing.T, image v1.Image, date time.Time) (binary []byte) {
	t.Helper()
	layers, err := image.Layers()
	must(t, err)
	if len(layers) != 1 {
		t.Fatalf("%d layers, want 1", len(layers))
	}
	if size, err := layers[0].Size(); err != nil || size > most {
		t.Errorf("the layer has %d bytes, %v; want at most %d", size, err, most)
	}
	content, err := layers[0].Uncompressed()
	must(t, err)
	defer content.Close()
	var got []string
	for archive := tar.NewReader(content); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		got = append(got, strings.TrimSpace(fmt.Sprintf("%v %d:%d %s %s", h.FileInfo().Mode(), h.Uid, h.Gid, h.Name, h.Linkname)))
		if !h.ModTime.Equal(date) {
			t.Errorf("%s is of %v, want the commit's %v", h.Name, h.ModTime, date)
		}
		data, err := io.ReadAll(archive)
		must(t, err)
		switch h.Name {
		case "bin/weir":
			binary = data
		case "etc/ssl/certs/ca-certificates.crt":
			checkRoots(t, data)
		}
	}
	want := []string{
		"drwxr-xr-x 0:0 bin/",
		"-rwxr-xr-x 0:0 bin/weir",
		"-rwxr-xr-x 0:0 bin/ratelimit bin/weir",
		"drwxr-xr-x 0:0 etc/",
		"drwxr-xr-x 0:0 etc/ssl/",
		"drwxr-xr-x 0:0 etc/ssl/certs/",
		"-rw-r--r-- 0:0 etc/ssl/certs/ca-certificates.crt",
	}
	if !slices.Equal(got, want) {
		t.Errorf("in the image are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return binary
}

func checkRoots(t *testing.T, pem []byte) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	//nolint:staticcheck // deprecated for system pools only
	subjects := pool.Subjects()
	if n := bytes.Count(pem, []byte("BEGIN CERTIFICATE")); n < 100 || len(subjects) != n {
		t.Errorf("%d certificates, of which Go reads %d", n, len(subjects))
	}
	if !slices.ContainsFunc(subjects, func(s []byte) bool { return bytes.Contains(s, []byte("ISRG Root X1")) }) {
		t.Error("ISRG Root X1 is not trusted")
	}
}

// checkBinary expects a static program for this architecture that prints its version if this
// machine can run it.
func checkBinary(t *testing.T, binary []byte, arch string) {
	t.Helper()
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	program, err := elf.NewFile(bytes.NewReader(binary))
	must(t, err)
	if program.Machine != machine || program.Section(".interp") != nil || program.Section(".symtab") != nil {
		t.Errorf("%v, want a static program without symbols for %v", program.Machine, machine)
	}
	if libraries, err := program.ImportedLibraries(); err == nil && len(libraries) > 0 {
		t.Errorf("it needs %v", libraries)
	}
	if arch != runtime.GOARCH || runtime.GOOS != "linux" {
		return
	}
	path := filepath.Join(t.TempDir(), "weir")
	must(t, os.WriteFile(path, binary, 0o755))
	said, err := exec.Command(path, "version").Output()
	if err != nil || !strings.HasPrefix(string(said), "weir ") || !strings.Contains(string(said), head(t)) ||
		!strings.HasSuffix(string(said), runtime.Version()+"\n") {
		t.Errorf("weir version: %q, %v", said, err)
	}
}

// checkBill expects a CycloneDX document that refers to the image, equals the one beside the
// layout, and lists the module's linked requirements.
func checkBill(t *testing.T, index v1.ImageIndex, entry, of v1.Descriptor, beside string) {
	t.Helper()
	bill, err := index.Image(entry.Digest)
	must(t, err)
	manifest, err := bill.Manifest()
	must(t, err)
	if manifest.Subject == nil || manifest.Subject.Digest != of.Digest || manifest.ArtifactType != cycloneDX || entry.ArtifactType != cycloneDX {
		t.Errorf("the manifest is %+v, of %v", manifest, of.Digest)
	}
	if entry.Platform.String() != "unknown/unknown" {
		t.Errorf("a client may take it for an image: its platform is %v", entry.Platform)
	}
	layers, err := bill.Layers()
	must(t, err)
	content, err := layers[0].Uncompressed()
	must(t, err)
	data, err := io.ReadAll(content)
	must(t, err)
	if file, err := os.ReadFile(beside); err != nil || !bytes.Equal(file, data) {
		t.Errorf("%s is another one: %v", beside, err)
	}
	var bom cdx.BOM
	must(t, cdx.NewBOMDecoder(bytes.NewReader(data), cdx.BOMFileFormatJSON).Decode(&bom))
	listed := map[string]bool{}
	for _, c := range *bom.Components {
		listed[c.PackageURL] = true
	}
	command := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}@{{.Version}}{{end}}{{end}}", "./cmd/server")
	command.Dir = filepath.Join("..", "..")
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+of.Platform.Architecture)
	out, err := command.Output()
	must(t, err)
	modules := slices.Compact(slices.Sorted(slices.Values(strings.Fields(string(out)))))
	for _, m := range append(modules, "stdlib@"+strings.TrimPrefix(runtime.Version(), "go")) {
		if !listed["pkg:golang/"+strings.ReplaceAll(m, "+", "%2B")] {
			t.Errorf("%s is linked in and not listed", m)
		}
	}
	if len(listed) != len(modules)+2 {
		t.Errorf("%d components, want %d modules, the standard library and the certificates", len(listed), len(modules))
	}
}

// Outside a checkout there is no commit and no date, but still one digest.
func TestImageOutsideCheckoutHasOneDigest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir")
	command := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", path, "./cmd/server")
	command.Dir, command.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for epoch, want := range map[string]string{"": "1970-01-01T00:00:00Z", "1767225600": "2026-01-01T00:00:00Z"} {
		t.Setenv("SOURCE_DATE_EPOCH", epoch)
		b, err := oci.Read(path)
		must(t, err)
		got := oci.Labels(b)
		if _, there := got["org.opencontainers.image.revision"]; there || got["org.opencontainers.image.created"] != want || b.Tag() != "devel" {
			t.Errorf("SOURCE_DATE_EPOCH=%s: %v, tag %s", epoch, got, b.Tag())
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if _, err := oci.Read(path); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("SOURCE_DATE_EPOCH=yesterday: %v", err)
	}
}

func configName(t *testing.T, image v1.Image) v1.Hash {
	t.Helper()
	name, err := image.ConfigName()
	must(t, err)
	return name
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
