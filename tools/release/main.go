// Command release writes everything that a release needs into -out:
//
//	weir-VERSION-OS-ARCH.tar.gz           the binary, LICENSE and README.md
//	weir-VERSION-OS-ARCH.cdx.json         the modules linked into the binary, as CycloneDX
//	weir-VERSION-image.oci.tar            the image of all architectures, as an OCI layout
//	weir-VERSION-image-linux-ARCH.tar     the image of one architecture, for docker load
//	weir-VERSION-image-linux-ARCH.cdx.json
//	weir-CHARTVERSION.tgz                 the Helm chart
//	weir-VERSION.intoto.json              the SLSA provenance of the files above
//	SHA256SUMS                            the digests of all files
//
// The same commit and Go version give the same bytes in every folder and on every machine. The
// version is the tag of the commit, else a pseudo-version of Go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/weir-rls/weir/tools/image/oci"
)

// options configure a release.
type options struct {
	root      string   // the repository
	out       string   // the folder to replace
	version   string   // the version that the commit must have; empty: any
	name      string   // the name of the published image
	platforms []string // OS/ARCH
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "the repository")
	flag.StringVar(&o.out, "out", "dist/release", "the folder to write; the tool removes its old content")
	flag.StringVar(&o.version, "version", "", "the tag that the commit must have (default: its tag, else a pseudo-version)")
	flag.StringVar(&o.name, "name", "ghcr.io/weir-rls/weir", "the name of the published image")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "for which platforms")
	verify := flag.Bool("verify", false, "build the commit in two clones, the second without a cache, and compare all digests")
	pushed := flag.String("push", "", "push this unpacked OCI layout to -name, and print the reference")
	flag.Parse()
	o.platforms = strings.Split(*platforms, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch {
	case *pushed != "":
		err = push(ctx, *pushed, o.name, os.Stdout)
	case *verify:
		err = reproduce(ctx, o, true, os.Stdout)
	default:
		err = release(ctx, o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release builds the commit that is checked out in o.root.
func release(ctx context.Context, o options, report io.Writer) error {
	if err := refuseDirty(ctx, o.root); err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "weir-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	builds, err := compile(o, temp)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(o.out); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	for _, b := range builds {
		if err := writeBinary(o, b); err != nil {
			return err
		}
	}
	if err := writeImages(o, builds, temp); err != nil {
		return err
	}
	if err := writeChart(ctx, o, builds[0]); err != nil {
		return err
	}
	if err := writeProvenance(o, builds); err != nil {
		return err
	}
	all, err := digests(o.out)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.out, sums), []byte(all.String()), 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintf(report, "%s in %s, of commit %s\n%s", builds[0].Version, o.out, builds[0].Revision, all)
	return err
}

// compile builds Weir for each platform. It fails if the commit does not have the version of o.
func compile(o options, dir string) (builds []*oci.Build, err error) {
	for _, platform := range o.platforms {
		system, arch, ok := strings.Cut(platform, "/")
		if !ok {
			return nil, fmt.Errorf("platform %q: want OS/ARCH, such as linux/amd64", platform)
		}
		b, err := oci.Compile(o.root, filepath.Join(dir, system+"-"+arch), system, arch)
		if err != nil {
			return nil, err
		}
		builds = append(builds, b)
	}
	if builds[0].Revision == "" {
		return nil, errors.New("the build found no commit: run the tool in a clone of the repository, with git installed")
	}
	if version := builds[0].Version; o.version != "" && o.version != version {
		return nil, fmt.Errorf("the version of this commit is %s, not %s: check out the tag %[2]s, or create it with: git tag %[2]s", version, o.version)
	}
	return builds, nil
}
