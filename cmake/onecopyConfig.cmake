# find_package(onecopy CONFIG REQUIRED): onecopy::structs, onecopy::arrays, onecopy::store and the modules below them;
# for C onecopy::c_shared, or onecopy::c, which is static and needs the language CXX in the project.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/onecopyTargets.cmake)
