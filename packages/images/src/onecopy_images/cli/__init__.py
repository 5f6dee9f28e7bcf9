"""The verbs of `onecopy images`: the group, and a module for each verb."""
