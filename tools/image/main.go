// Command image builds Weir's image without a daemon and without a registry. It writes into -out:
//
//	oci/                       an OCI image layout of all architectures, for skopeo, crane, oras or ctr
//	weir-linux-ARCH.tar        one architecture, for docker load
//	weir-linux-ARCH.cdx.json   the modules linked into the binary, as CycloneDX; also in oci/, as a referrer
//
// The same commit, Go version and libraries give the same digests. Version, commit and date come from the binary.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// options configure a build.
type options struct {
	root  string   // the repository
	out   string   // the folder to write to
	name  string   // the image's name, without a tag
	tag   string   // empty: the version
	archs []string // in Go's names
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "the repository")
	flag.StringVar(&o.out, "out", "dist", "where to write; what an earlier build wrote there goes")
	flag.StringVar(&o.name, "name", "weir", "the name of the image, without a tag")
	flag.StringVar(&o.tag, "tag", "", "its tag (default: the version)")
	archs := flag.String("arch", "amd64,arm64", "for which architectures")
	flag.Parse()
	o.archs = strings.Split(*archs, ",")
	if err := run(o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(o options, report io.Writer) error {
	temp, err := os.MkdirTemp("", "weir-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	var builds []*build
	for _, arch := range o.archs {
		b, err := compile(o.root, temp, arch)
		if err != nil {
			return err
		}
		builds = append(builds, b)
	}
	tag, err := name.NewTag(o.name + ":" + cmp.Or(o.tag, builds[0].tag()))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	var all []platformImage
	for _, b := range builds {
		one, err := newPlatformImage(b)
		if err != nil {
			return fmt.Errorf("%s: %w", b.arch, err)
		}
		all = append(all, one)
		stem := filepath.Join(o.out, "weir-linux-"+b.arch)
		if err := os.WriteFile(stem+".cdx.json", one.sbom, 0o644); err != nil {
			return err
		}
		if err := tarball.WriteToFile(stem+".tar", tag, one.image); err != nil {
			return err
		}
		if err := describe(report, tag, b.arch, one.image); err != nil {
			return err
		}
	}
	index, err := newIndex(builds[0], all)
	if err != nil {
		return err
	}
	return writeLayout(filepath.Join(o.out, "oci"), tag, index, report)
}

// writeLayout replaces the layout in dir. The layout has one entry, so tools need no name to find it.
func writeLayout(dir string, tag name.Tag, index v1.ImageIndex, report io.Writer) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	path, err := layout.Write(dir, emptyIndex())
	if err != nil {
		return err
	}
	err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": tag.TagStr(),
		// The name for ctr image import, which does not know Docker Hub's short names.
		"io.containerd.image.name": strings.Replace(tag.Name(), "index.docker.io", "docker.io", 1),
	}))
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(report, "%s %s, in %s\n", tag, digest, dir)
	return err
}

// describe prints the platform, the digest and the transferred size of an image.
func describe(to io.Writer, tag name.Tag, arch string, image v1.Image) error {
	manifest, err := image.Manifest()
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	size, err := image.Size()
	if err != nil {
		return err
	}
	size += manifest.Config.Size
	for _, l := range manifest.Layers {
		size += l.Size
	}
	_, err = fmt.Fprintf(to, "%s linux/%s %s, %.1f MB compressed\n", tag, arch, digest, float64(size)/1e6)
	return err
}

// compile builds the server for linux and reads its build information back.
func compile(root, dir, arch string) (*build, error) {
	path := filepath.Join(dir, "weir-"+arch)
	// auto: with the commit in a checkout, even if GOFLAGS disables it.
	cmd := exec.Command("go", "build", "-buildvcs=auto", "-trimpath", "-ldflags=-s -w", "-o", path, "./cmd/server")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build for linux/%s: %w\n%s", arch, err, out)
	}
	b, err := readBuild(path)
	if err != nil {
		return nil, err
	}
	if b.arch != arch {
		return nil, errors.New("the binary is for " + b.arch + ", want " + arch)
	}
	return b, nil
}
