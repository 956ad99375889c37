//! Each format takes its comment where it changes nothing.
use super::*;

fn planted(name: &str, content: &str) -> Option<String> {
    with_comment(Path::new(name), content.as_bytes(), "TOKEN").map(|bytes| String::from_utf8(bytes).unwrap())
}

#[test]
fn a_comment_comes_after_what_must_come_first() {
    for (name, content, expected) in [
        ("a.py", "import x\n", "# TOKEN\nimport x\n"),
        (
            "a.py",
            "#!/usr/bin/python3\n# -*- coding: latin-1 -*-\nx = 1\n",
            "#!/usr/bin/python3\n# -*- coding: latin-1 -*-\n# TOKEN\nx = 1\n",
        ),
        ("run", "#!/usr/bin/env -S python3.12 -u\nx\n", "#!/usr/bin/env -S python3.12 -u\n# TOKEN\nx\n"),
        ("run", "#!/bin/sh", "#!/bin/sh\n# TOKEN\n"),
        ("run", "#!/usr/bin/env node\n'use strict'\n", "#!/usr/bin/env node\n// TOKEN\n'use strict'\n"),
        ("a.rb", "# frozen_string_literal: true\n\nx\n", "# frozen_string_literal: true\n# TOKEN\n\nx\n"),
        ("user-data.yaml", "#cloud-config\na: 1\n", "#cloud-config\n# TOKEN\na: 1\n"),
        (
            "Dockerfile",
            "# syntax=docker/dockerfile:1\n# escape=`\nFROM x\n",
            "# syntax=docker/dockerfile:1\n# escape=`\n# TOKEN\nFROM x\n",
        ),
        ("a.toml", "\u{feff}a = 1\r\nb = 2\r\n", "\u{feff}# TOKEN\r\na = 1\r\nb = 2\r\n"),
        ("a.rs", "#![no_std]\n", "// TOKEN\n#![no_std]\n"),
        ("a.go", "//go:build linux\n\npackage a\n", "// TOKEN\n//go:build linux\n\npackage a\n"),
        ("a.sql", "select 1;\n", "-- TOKEN\nselect 1;\n"),
        ("a.ini", "[a]\n", "; TOKEN\n[a]\n"),
        ("a.css", "@charset \"utf-8\";\na{}\n", "@charset \"utf-8\";\n/* TOKEN */\na{}\n"),
        ("a.xml", "<?xml version=\"1.0\"?><a/>", "<?xml version=\"1.0\"?>\n<!-- TOKEN -->\n<a/>"),
        ("a.html", "<!doctype html>\n<p>\n", "<!doctype html>\n<!-- TOKEN -->\n<p>\n"),
        ("a.md", "---\ntitle: x\n---\n# x\n", "---\ntitle: x\n---\n<!-- TOKEN -->\n# x\n"),
        ("a.patch", "--- a/x\n+++ b/x\n", "TOKEN\n--- a/x\n+++ b/x\n"),
        (
            "a.patch",
            "From 1 Mon\nSubject: x\n\nx\n---\n x | 1 +\n",
            "From 1 Mon\nSubject: x\n\nx\n---\nTOKEN\n x | 1 +\n",
        ),
        ("Dockerfile.dev", "#Syntax = x\n#  ESCAPE=`\n#\nFROM x\n", "#Syntax = x\n#  ESCAPE=`\n# TOKEN\n#\nFROM x\n"),
        ("a.yaml", "# escape = x\na: 1\n", "# TOKEN\n# escape = x\na: 1\n"),
        (
            "a.el",
            ";;; a.el --- x -*- lexical-binding: t -*-\n(x)\n",
            ";;; a.el --- x -*- lexical-binding: t -*-\n; TOKEN\n(x)\n",
        ),
        ("a.sed", "#n\np\n", "#n\n# TOKEN\np\n"),
        ("a.sed", "#no\np\n", "# TOKEN\n#no\np\n"),
        ("a.ts", "/**\n * @jest-environment jsdom\n */\nx\n", "/**\n * @jest-environment jsdom\n */\n// TOKEN\nx\n"),
        ("a.js", "#!/usr/bin/env node\n\n/* x */", "#!/usr/bin/env node\n\n/* x */\n// TOKEN\n"),
        ("a.ts", "<?xml version=\"1.0\"?>\n<TS/>\n", "<?xml version=\"1.0\"?>\n<!-- TOKEN -->\n<TS/>\n"),
        ("a.ts", "<!DOCTYPE TS>\n<TS/>\n", "<!DOCTYPE TS>\n<!-- TOKEN -->\n<TS/>\n"),
        ("a.md", "+++\ntitle = 'x'\n+++\n# x\n", "+++\ntitle = 'x'\n+++\n<!-- TOKEN -->\n# x\n"),
        ("a.scss", "---\n---\na{}\n", "---\n---\n/* TOKEN */\na{}\n"),
        (
            "a.patch",
            "From: x\nSubject: y\n\nz\n---\n a | 1 +\n\ndiff --git a/a b/a\n",
            "From: x\nSubject: y\n\nz\n---\nTOKEN\n a | 1 +\n\ndiff --git a/a b/a\n",
        ),
        ("a.diff", "Index: a\n--- a\n+++ a\n", "TOKEN\nIndex: a\n--- a\n+++ a\n"),
        ("a.yaml", "#cloud-config-archive\n- x\n", "#cloud-config-archive\n# TOKEN\n- x\n"),
        ("a.yaml", "## template: jinja\n#cloud-config\na: 1\n", "## template: jinja\n#cloud-config\n# TOKEN\na: 1\n"),
        ("a.zsh", "#compdef a\n_a\n", "#compdef a\n# TOKEN\n_a\n"),
        ("a.tex", "%&latex\n\\x\n", "%&latex\n% TOKEN\n\\x\n"),
        ("Package.swift", "// swift-tools-version:5.9\nimport x\n", "// swift-tools-version:5.9\n// TOKEN\nimport x\n"),
        ("a.hs", "#!/usr/bin/env stack\n-- stack script\nx\n", "#!/usr/bin/env stack\n-- stack script\n-- TOKEN\nx\n"),
    ] {
        assert_eq!(planted(name, content).as_deref(), Some(expected), "{name} {content:?}");
    }
}

#[test]
fn what_has_no_comments_is_left_alone() {
    for (name, content) in [
        ("a.json", "{}\n"),
        ("a.csv", "a,b\n"),
        ("a.txt", "x\n"),
        ("noname", "x\n"),
        ("a.py", ""),
        ("a.py", "a\0b"),
        ("a.xml", "<?xml never ends"),
        ("a.xml", "<!DOCTYPE a [<!ENTITY b \"c\">]><a/>"),
        ("a.md", "---\nnever: ends\n"),
        ("a.patch", "From 1 Mon\nSubject: x\n"),
        ("run", "#!/opt/odd/interpreter\n"),
        ("a.js", "/* a */ x()\n"),
        ("a.js", "/* never ends\n"),
        ("a.js", "---\n---\nx()\n"),
        ("a.md", "{\n\"title\": \"x\"}\n"),
        ("a.md", "---\ntitle: x\n...\n---\n"),
        ("a.patch", "Subject: x\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n x\n---\n"),
        ("a.patch", "# HG changeset patch\n# User x\n"),
        ("a.yml", "$ANSIBLE_VAULT;1.1;AES256\n6162\n"),
        ("a.conf", "{\"a\": 1}\n"),
        ("a.hs", "#!/usr/bin/env stack\n{- stack\n  script\n-}\n"),
    ] {
        assert_eq!(planted(name, content), None, "{name}");
    }
}
