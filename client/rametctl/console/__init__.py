"""Print and ask on the terminal: lines of styled text, output for people and as JSON, a choice by
arrow keys."""
