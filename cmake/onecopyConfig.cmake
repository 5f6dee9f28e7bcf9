# find_package(onecopy CONFIG REQUIRED): onecopy::structs, onecopy::arrays, onecopy::store and the modules below them.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/onecopyTargets.cmake)
