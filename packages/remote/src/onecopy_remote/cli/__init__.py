"""The verb `onecopy fetch`."""
