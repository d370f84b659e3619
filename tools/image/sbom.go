package main

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

// billOfMaterials lists the content of the image: the modules that the linker recorded in the binary, Go's standard library
// and the CA certificates.
func billOfMaterials(b *build) ([]byte, error) {
	sum := sha256.Sum256(b.binary)
	weir := cdx.Component{
		BOMRef: "weir", Type: cdx.ComponentTypeApplication, Name: b.info.Main.Path, Version: b.version,
		PackageURL: packageURL(b.info.Main.Path, b.version),
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		ExternalReferences: &[]cdx.ExternalReference{
			{Type: cdx.ERTypeVCS, URL: source, Comment: b.revision},
		},
	}
	authorities, err := ownModule(bundleModule)
	if err != nil {
		return nil, err
	}
	// Scanners know the standard library by this name.
	std := &debug.Module{Path: "stdlib", Version: strings.TrimPrefix(b.info.GoVersion, "go")}
	var parts []cdx.Component
	var refs []string
	for _, m := range append([]*debug.Module{std, authorities}, b.info.Deps...) {
		for m.Replace != nil {
			m = m.Replace
		}
		c := cdx.Component{
			BOMRef: packageURL(m.Path, m.Version), PackageURL: packageURL(m.Path, m.Version),
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
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceURL, []byte(source+"#"+hex.EncodeToString(sum[:])+authorities.Version)).URN()
	bom.Metadata = &cdx.Metadata{Timestamp: b.date.Format(time.RFC3339), Component: &weir}
	bom.Components = &parts
	bom.Dependencies = &[]cdx.Dependency{{Ref: weir.BOMRef, Dependencies: &refs}}
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func packageURL(path, version string) string {
	if version == "(devel)" {
		return "pkg:golang/" + path
	}
	// Other characters of a path or a version need no escape.
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// ownModule is a module linked into this program.
func ownModule(path string) (*debug.Module, error) {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m, nil
			}
		}
	}
	return nil, fmt.Errorf("%s is not in the build information of this program", path)
}
