# What `cmake --install` puts in place: the modules, the public headers, and how CMake and pkg-config find them.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

get_property(modules GLOBAL PROPERTY onecopy_modules)
list(TRANSFORM modules PREPEND onecopy_ OUTPUT_VARIABLE libraries)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/onecopy)

install(
  TARGETS ${libraries} onecopy_c_shared
  EXPORT onecopyTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT onecopyTargets NAMESPACE onecopy:: DESTINATION ${package_folder})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/onecopy DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
write_basic_package_version_file(${PROJECT_BINARY_DIR}/onecopyConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/onecopyConfig.cmake ${PROJECT_BINARY_DIR}/onecopyConfigVersion.cmake
        DESTINATION ${package_folder})

# The prefix is known when it is installed, and not here.
file(RELATIVE_PATH include_folder ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_FULL_INCLUDEDIR})
# A static library must stand before those that it uses: the last module first.
list(REMOVE_ITEM libraries onecopy_c)
list(REVERSE libraries)
list(APPEND libraries ${CMAKE_DL_LIBS})
list(TRANSFORM libraries PREPEND -l)
list(JOIN libraries " " link_flags)
foreach(description onecopy onecopy-c)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${description}.pc.in ${PROJECT_BINARY_DIR}/${description}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${description}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
