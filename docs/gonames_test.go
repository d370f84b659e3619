package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

// goName is code such as `decide.Planner`, `Store.Take` or `limiterstest.Run()`.
var goName = regexp.MustCompile("`(\\w+)\\.([A-Z]\\w*)(?:\\(\\))?`")

// If the first part of a Go name on a page is a package or an exported type of this repository, the
// second part is an exported member of it. If several have the first name, one has the member.
func TestGoNamesOnPagesExist(t *testing.T) {
	members := exportedMembers(t)
	n := 0
	for _, path := range pages(t) {
		for _, name := range goName.FindAllStringSubmatch(string(must.Read(t, path)), -1) {
			if known := members[name[1]]; known != nil {
				n++
				if !known[name[2]] {
					t.Errorf("%s: %s: %s has no such exported member", path, name[0], name[1])
				}
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d names: this test no longer finds them", n)
	}
}

// exportedMembers returns the exported declarations of each package by its name, and the exported
// methods and fields of each exported type by its name. It omits promoted methods and fields.
func exportedMembers(t *testing.T) map[string]map[string]bool {
	t.Helper()
	members := map[string]map[string]bool{}
	add := func(of string, names ...*ast.Ident) {
		if members[of] == nil {
			members[of] = map[string]bool{}
		}
		for _, name := range names {
			members[of][name.Name] = true
		}
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil || file.Name.Name == "main" || !ast.FileExports(file) {
			return err
		}
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				of := file.Name.Name
				if decl.Recv != nil {
					of, _, _ = strings.Cut(strings.TrimPrefix(types.ExprString(decl.Recv.List[0].Type), "*"), "[")
				}
				add(of, decl.Name)
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.ValueSpec:
						add(file.Name.Name, spec.Names...)
					case *ast.TypeSpec:
						add(file.Name.Name, spec.Name)
						ast.Inspect(spec.Type, func(n ast.Node) bool {
							if field, ok := n.(*ast.Field); ok { // of a struct, or a method of an interface
								add(spec.Name.Name, field.Names...)
							}
							return true
						})
					}
				}
			}
		}
		return nil
	})
	must.Succeed(t, err)
	return members
}
