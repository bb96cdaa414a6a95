package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/sdk"
)

// The page shows every key of fusebox.toml, and the file that it shows is read.
func TestWiringPage(t *testing.T) {
	file := block(t, mustRead(t, "README.md"), "wiring")
	if _, err := sdk.ParseConfig("fusebox.toml", []byte(file)); err != nil {
		t.Errorf("the file on the page is not read: %v", err)
	}
	var walk func(reflect.Type, string)
	walk = func(typ reflect.Type, table string) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			key, in := f.Tag.Get("toml"), f.Type
			switch {
			case key == "" || key == "mcp" || key == "plugin": // sections of their own
			case in.Kind() == reflect.Slice && in.Elem().Kind() == reflect.Struct:
				walk(in.Elem(), "[["+key+"]]")
			case in.Kind() == reflect.Struct && in.NumField() > 0 && in.Field(0).Tag.Get("toml") != "":
				walk(in, "["+key+"]")
			default:
				_, rest, found := strings.Cut(file, table)
				rest, _, _ = strings.Cut(strings.TrimPrefix(rest, "\n"), "\n[")
				if !found || !strings.Contains("\n"+rest, "\n"+key+" = ") {
					t.Errorf("%s %s is a key of fusebox.toml, and the page does not show it", table, key)
				}
			}
		}
	}
	walk(reflect.TypeFor[sdk.Config](), "")
}
