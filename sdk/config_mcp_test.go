package sdk

import (
	"strings"
	"testing"
	"time"
)

func TestConfigOfMCPServers(t *testing.T) {
	c, err := ParseConfig("fusebox.toml", []byte("[[mcp]]\nname = \"mail\"\nurl = \"https://mcp.example.com/mcp\"\nhide_open = true\n\n[[mcp]]\nname = \"files\"\ntimeout = \"30s\"\ndenials = \"error\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if m := c.MCPNamed("mail"); !m.HideOpen || m.Denials != "result" || time.Duration(m.Timeout) != 10*time.Minute {
		t.Errorf("mail: %+v", m)
	}
	if m := c.MCPNamed("files"); m.Denials != "error" || time.Duration(m.Timeout) != 30*time.Second {
		t.Errorf("files: %+v", m)
	}
	if m := c.MCPNamed("other"); m.Name != "other" || m.Denials != "result" {
		t.Errorf("not configured: %+v", m)
	}
	for text, want := range map[string]string{
		"[[mcp]]\nname = \"Mail\"":                                                    "fusebox.toml:2: mcp[0].name is \"Mail\"",
		"[[mcp]]\nname = \"a\"\n[[mcp]]\nname = \"a\"":                                "fusebox.toml:4: mcp[1].name is \"a\" a second time",
		"[[mcp]]\nname = \"a\"\nurl = \"stdio\"":                                      "fusebox.toml:3: mcp[0].url",
		"[[mcp]]\nname = \"a\"\nkey_env = \"K\"":                                      "mcp[0].key_env needs url",
		"[[mcp]]\nname = \"a\"\nurl = \"https://x/m\"\ndenials = \"errors\"":          "did you mean \"error\"?",
		"[[mcp]]\nname = \"a\"\nurl = \"https://x/m\"\nhide = true":                   "fusebox.toml:4: mcp.hide is not a setting",
		"[[mcp]]\nname = \"a\"\nurl = \"https://user:secret@x/m\"":                    "holds a password",
		"[[mcp]]\nname = \"a\"\nurl = \"https://x/m\"\ntimeout = \"-1s\"":             "is not positive",
		"[[upstream]]\nname = \"mcp\"\ndialect = \"plain\"\nurl = \"https://x.test\"": "which fusebox itself answers",
	} {
		if _, err := ParseConfig("fusebox.toml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
