// Command image builds Weir's image without a daemon and without a registry. It writes into -out:
//
//	oci/                       an OCI image layout of all architectures, for skopeo, crane, oras or ctr
//	weir-linux-ARCH.tar        one architecture, for docker load
//	weir-linux-ARCH.cdx.json   the modules linked into the binary, as CycloneDX; also in oci/, as a referrer
//
// The same commit, Go version and libraries give the same digests. Version, commit and date come
// from the binary.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/weir-rls/weir/tools/image/oci"
)

func main() {
	var o oci.Options
	flag.StringVar(&o.Root, "root", ".", "the repository")
	flag.StringVar(&o.Out, "out", "dist", "where to write; what an earlier build wrote there goes")
	flag.StringVar(&o.Name, "name", "weir", "the name of the image, without a tag")
	flag.StringVar(&o.Tag, "tag", "", "its tag (default: the version)")
	archs := flag.String("arch", "amd64,arm64", "for which architectures")
	flag.Parse()
	o.Archs = strings.Split(*archs, ",")
	if err := oci.Run(o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}
