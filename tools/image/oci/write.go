package oci

import (
	"cmp"
	"errors"
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

// Options configure a build of the image.
type Options struct {
	Root  string   // the repository
	Out   string   // the folder to write to
	Name  string   // the image's name, without a tag
	Tag   string   // empty: the version
	Archs []string // in Go's names
}

// Run compiles the server for each architecture and writes its image.
func Run(o Options, report io.Writer) error {
	temp, err := os.MkdirTemp("", "weir-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	var builds []*Build
	for _, arch := range o.Archs {
		b, err := Compile(o.Root, filepath.Join(temp, "weir-"+arch), "linux", arch)
		if err != nil {
			return err
		}
		builds = append(builds, b)
	}
	return Write(o, builds, report)
}

// Write writes the image of builds: a layout of all of them, and for each a tar archive for Docker
// and a bill of materials. It ignores o.Root and o.Archs.
func Write(o Options, builds []*Build, report io.Writer) error {
	tag, err := name.NewTag(o.Name + ":" + cmp.Or(o.Tag, builds[0].Tag()))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return err
	}
	var all []platformImage
	for _, b := range builds {
		one, err := newPlatformImage(b)
		if err != nil {
			return fmt.Errorf("%s: %w", b.Arch, err)
		}
		all = append(all, one)
		stem := filepath.Join(o.Out, "weir-linux-"+b.Arch)
		if err := os.WriteFile(stem+".cdx.json", one.sbom, 0o644); err != nil {
			return err
		}
		if err := tarball.WriteToFile(stem+".tar", tag, one.image); err != nil {
			return err
		}
		if err := describe(report, tag, b.Arch, one.image); err != nil {
			return err
		}
	}
	index, err := newIndex(builds[0], all)
	if err != nil {
		return err
	}
	return writeLayout(filepath.Join(o.Out, "oci"), tag, index, report)
}

// writeLayout replaces the layout in dir. The layout has one entry, so tools need no name to find
// it.
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

// Compile builds the server as the file path and reads its build information back. The settings of
// the caller's environment that change the program are reset.
func Compile(root, path, goos, arch string) (*Build, error) {
	// auto: with the commit, in a checkout.
	cmd := exec.Command("go", "build", "-buildvcs=auto", "-trimpath", "-ldflags=-s -w", "-o", path, "./cmd/server")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+arch, "GOWORK=off",
		"GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build for %s/%s: %w\n%s", goos, arch, err, out)
	}
	b, err := Read(path)
	if err != nil {
		return nil, err
	}
	if b.OS != goos || b.Arch != arch {
		return nil, errors.New("the binary is for " + b.OS + "/" + b.Arch + ", want " + goos + "/" + arch)
	}
	return b, nil
}
