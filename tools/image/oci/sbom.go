package oci

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

const cycloneDX = "application/vnd.cyclonedx+json"

// BillOfMaterials lists the content of the binary: the modules that the linker recorded, and Go's
// standard library. If authorities is not nil, it adds that module of CA certificates, which only
// an image contains.
func BillOfMaterials(b *Build, authorities *debug.Module) ([]byte, error) {
	sum := sha256.Sum256(b.Binary)
	weir := cdx.Component{
		BOMRef: "weir", Type: cdx.ComponentTypeApplication, Name: b.Info.Main.Path, Version: b.Version,
		PackageURL: PackageURL(b.Info.Main.Path, b.Version),
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		ExternalReferences: &[]cdx.ExternalReference{
			{Type: cdx.ERTypeVCS, URL: Source, Comment: b.Revision},
		},
	}
	// Scanners know the standard library by this name.
	std := &debug.Module{Path: "stdlib", Version: strings.TrimPrefix(b.Info.GoVersion, "go")}
	var parts []cdx.Component
	var refs []string
	modules, content := []*debug.Module{std}, hex.EncodeToString(sum[:])
	if authorities != nil {
		modules, content = append(modules, authorities), content+authorities.Version
	}
	for _, m := range append(modules, b.Info.Deps...) {
		for m.Replace != nil {
			m = m.Replace
		}
		c := cdx.Component{
			BOMRef: PackageURL(m.Path, m.Version), PackageURL: PackageURL(m.Path, m.Version),
			Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version,
		}
		if m == authorities {
			c.Type, c.Description = cdx.ComponentTypeData, "/etc/ssl/certs/ca-certificates.crt is made of it"
		}
		if m.Sum != "" {
			c.Properties = &[]cdx.Property{{Name: "go.sum", Value: m.Sum}}
		}
		parts, refs = append(parts, c), append(refs, c.BOMRef)
	}
	bom := cdx.NewBOM()
	// A hash of the content: the same for every build of it.
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceURL, []byte(Source+"#"+content)).URN()
	bom.Metadata = &cdx.Metadata{Timestamp: b.Date.Format(time.RFC3339), Component: &weir}
	bom.Components = &parts
	bom.Dependencies = &[]cdx.Dependency{{Ref: weir.BOMRef, Dependencies: &refs}}
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// PackageURL returns the package URL of a Go module.
func PackageURL(path, version string) string {
	if version == "(devel)" {
		return "pkg:golang/" + path
	}
	// Other characters of a path or a version need no escape.
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// Authorities returns the module of the CA certificates, which is linked into this program.
func Authorities() (*debug.Module, error) {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == bundleModule {
				return m, nil
			}
		}
	}
	return nil, fmt.Errorf("%s is not in the build information of this program", bundleModule)
}
